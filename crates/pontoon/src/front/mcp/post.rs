//! What a posted message is: its era, by the body first, and whether its headers agree with it.
//!
//! Plain functions over headers and a message; what follows from them is done in `streamable` and `sse`.

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Kind, Message, Revision, ScanError, Slot, headers, method};

use super::super::headers::only_text;
use super::super::refusal::Refusal;
use super::super::request_body::read_body;
use super::super::site::HttpSite;
use crate::client::Principal;

/// The header that names a legacy session.
pub static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header that names the revision.
pub static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The header of a client that comes back to a stream.
pub static LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A message, and a stream of them.
const JSON: &[u8] = b"application/json";
const EVENTS: &[u8] = b"text/event-stream";

/// The longest thing a request may say of its client, in bytes: a child may be kept under it.
const MAX_META: usize = 64 * 1024;

/// The message in a body, with an envelope as it must be.
///
/// # Errors
///
/// A body that is refused, or is no message.
pub async fn read_message(
    headers: &HeaderMap,
    body: Incoming,
    site: &HttpSite,
    client: &Principal,
) -> Result<Message, Refusal> {
    let (body, hold) = read_body(headers, body, site, client).await?;
    Ok(hold.ride_with(parse(body)?))
}

/// The message in this text, with an envelope as it must be.
///
/// # Errors
///
/// A text that is no message.
pub fn parse(text: BytesMut) -> Result<Message, Refusal> {
    let message = Message::parse(text).map_err(unreadable)?;
    match message.check_envelope() {
        Ok(()) => Ok(message),
        Err(wrong) => Err(Refusal::invalid(400, wrong.to_string()).with_id(request_id(&message))),
    }
}

/// What to say to a body that is no message.
fn unreadable(error: ScanError) -> Refusal {
    let code = match error {
        ScanError::Batch | ScanError::NotObject | ScanError::Duplicate { .. } => {
            code::INVALID_REQUEST
        }
        _ => code::PARSE,
    };
    Refusal::new(400, code, error.to_string())
}

/// The id of a message, if it has one.
pub fn request_id(message: &Message) -> Option<Bytes> {
    message.copy(Slot::Id).filter(|id| id.as_ref() != b"null")
}

/// Whether a body says that it is JSON. Any page can post a form to us; JSON it cannot post without
/// asking first.
///
/// # Errors
///
/// 415 for one that does not.
pub fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    let content = only_text(headers, &CONTENT_TYPE)?.unwrap_or_default().as_bytes();
    let essence = content.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !essence.eq_ignore_ascii_case(JSON) {
        let text = "the body must be application/json: say so in Content-Type";
        return Err(Refusal::invalid(415, text));
    }
    Ok(())
}

const BOTH: &str = "Accept must list both application/json and text/event-stream";

/// What a client takes, as its `Accept` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Whether JSON is among it.
    pub json: bool,
    /// Whether events are, as for every client that speaks MCP.
    pub events: bool,
    /// Whether events are named. A client that says nothing, or `*/*`, may not know them.
    pub names_events: bool,
    /// Whether events stand first: then the client would rather have a stream.
    pub prefers_events: bool,
}

impl Accepted {
    /// What these headers say. A client that says nothing takes everything.
    pub fn read(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(ACCEPT).iter().peekable();
        if values.peek().is_none() {
            return Self { json: true, events: true, ..Self::default() };
        }
        let mut accepted = Self::default();
        let ranges = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        for (index, range) in ranges.enumerate() {
            let range = range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let is = |media: &[u8]| range.eq_ignore_ascii_case(media);
            let (is_json, is_events, is_all) = (is(JSON), is(EVENTS), range == b"*/*");
            accepted.json |= is_json || is_all || is(b"application/*");
            accepted.events |= is_events || is_all || is(b"text/*");
            accepted.names_events |= is_events;
            accepted.prefers_events |= is_events && index == 0;
        }
        accepted
    }

    /// Whether the client takes events.
    ///
    /// # Errors
    ///
    /// 406 for one that does not.
    pub fn check_events(self) -> Result<(), Refusal> {
        match self.events {
            true => Ok(()),
            false => Err(Refusal::invalid(406, BOTH)),
        }
    }
}

/// Whether the media types of a POST are right, whatever it posts; gives what its client takes.
///
/// # Errors
///
/// 415 for a body that is not JSON, 406 for a client that does not take JSON.
pub fn check_media(headers: &HeaderMap) -> Result<Accepted, Refusal> {
    check_content(headers)?;
    let accepted = Accepted::read(headers);
    match accepted.json {
        true => Ok(accepted),
        false => Err(Refusal::invalid(406, BOTH)),
    }
}

/// The era of a message: its body decides, and a header only where the body is silent.
pub fn era(message: &Message, version_header: Option<&str>) -> Era {
    if message.has(Slot::MetaVersion) {
        return Era::Modern;
    }
    match message.method().as_ref() {
        method::INITIALIZE => Era::Legacy,
        method::DISCOVER | method::LISTEN => Era::Modern,
        _ => match version_header.and_then(Revision::parse).map(Revision::era) {
            Some(Era::Modern) if message.kind() == Kind::Request => Era::Modern,
            _ => Era::Legacy,
        },
    }
}

/// Whether a modern request describes itself, and its headers say the same.
///
/// # Errors
///
/// 400 with the protocol's codes.
pub fn check_modern(headers: &[(&str, &[u8])], request: &Message) -> Result<(), Refusal> {
    check_described(request, |method, name, version| {
        headers::check_standard(headers, method, name, version)
            .map_err(|mismatch| Refusal::new(400, code::HEADER_MISMATCH, mismatch.to_string()))
    })
}

/// Whether a modern request describes itself. Its method, name and version are to be `agreed` to.
///
/// # Errors
///
/// 400 with the protocol's codes.
pub fn check_described(
    request: &Message,
    agreed: impl FnOnce(&str, Option<&str>, &str) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let invalid = |text: &str| Refusal::new(400, code::INVALID_PARAMS, text);
    let Some(version) = request.string(Slot::MetaVersion) else {
        let name = Slot::MetaVersion.name();
        return Err(invalid(&format!("`params._meta` must hold \"{name}\"")));
    };
    let method = request.method();
    let member = headers::name_member(&method);
    let name = match member {
        Some("uri") => request.string(Slot::Uri),
        Some("taskId") => request.string(Slot::TaskId),
        Some(_) => request.string(Slot::Name),
        None => None,
    };
    if let Some(member) = member.filter(|_| name.is_none()) {
        return Err(invalid(&format!("`params.{member}` must be a string")));
    }
    agreed(&method, name.as_deref(), &version)?;
    if Revision::parse(&version).map(Revision::era) != Some(Era::Modern) {
        let error =
            ErrorObject::new(code::UNSUPPORTED_VERSION, "this protocol version is not spoken here");
        let data = format!(
            "{{\"supported\":[\"{}\"],\"requested\":{}}}",
            Revision::NEWEST_MODERN,
            pontoon_wire::quoted(&version),
        );
        return Err(Refusal::with_error(400, error.with_data(data)));
    }
    if request.raw(Slot::MetaCapabilities).is_none_or(|raw| raw.first() != Some(&b'{')) {
        let name = Slot::MetaCapabilities.name();
        return Err(invalid(&format!("`params._meta` must hold \"{name}\", an object")));
    }
    for slot in [Slot::MetaCapabilities, Slot::MetaClientInfo, Slot::MetaLogLevel] {
        if request.raw(slot).is_some_and(|raw| raw.len() > MAX_META) {
            return Err(invalid(&format!("\"{}\" is longer than {MAX_META} bytes", slot.name())));
        }
    }
    Ok(())
}

/// The headers as the rules of the protocol want them.
pub fn header_list(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[track_caller]
    fn check_media_is(pairs: &[(&'static str, &'static str)], expected: u16) {
        let headers = headers(pairs);
        let checked = check_media(&headers).and_then(Accepted::check_events);
        let found = checked.map_or_else(|refusal| refusal.status(), |()| 200);
        assert_eq!(found, expected, "{pairs:?}");
    }

    #[test]
    fn media_types_are_checked() {
        let json = ("content-type", "application/json; charset=utf-8");
        check_media_is(&[json], 200);
        check_media_is(&[json, ("accept", "*/*")], 200);
        check_media_is(&[json, ("accept", "application/json, text/event-stream;q=0.5")], 200);
        check_media_is(&[json, ("accept", "application/json"), ("accept", "text/*")], 200);
        check_media_is(&[json, ("accept", "application/json")], 406);
        check_media_is(&[("content-type", "text/plain")], 415);
        check_media_is(&[], 415);
    }

    #[test]
    fn only_a_client_that_names_events_knows_them() {
        let named = |value| Accepted::read(&headers(&[("accept", value)])).names_events;
        assert!(named("application/json, Text/Event-Stream;q=0.5"));
        assert!(!named("*/*") && !named("text/*") && !named("application/json"));
        assert!(!Accepted::read(&headers(&[])).names_events);
    }

    #[test]
    fn what_stands_first_is_preferred() {
        let preferred = |values: &[&'static str]| {
            let pairs: Vec<_> = values.iter().map(|value| ("accept", *value)).collect();
            Accepted::read(&headers(&pairs)).prefers_events
        };
        assert!(preferred(&["text/event-stream;q=0.9, application/json"]));
        assert!(preferred(&["text/event-stream", "application/json"]));
        assert!(!preferred(&["application/json, text/event-stream"]));
        assert!(!preferred(&["application/json", "text/event-stream"]) && !preferred(&[]));
    }

    #[track_caller]
    fn check_era(body: &str, version: Option<&str>, expected: Era) {
        let message = Message::parse(body.as_bytes()).unwrap();
        assert_eq!(era(&message, version), expected, "{body}");
    }

    #[test]
    fn the_body_decides_the_era() {
        let modern = r#"{"id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}}"#;
        check_era(modern, None, Era::Modern);
        check_era(modern, Some("2025-06-18"), Era::Modern);
        let plain = r#"{"id":1,"method":"tools/list"}"#;
        check_era(plain, None, Era::Legacy);
        check_era(plain, Some("2026-07-28"), Era::Modern);
        check_era(r#"{"id":1,"method":"initialize"}"#, Some("2026-07-28"), Era::Legacy);
        check_era(r#"{"id":1,"method":"server/discover"}"#, None, Era::Modern);
        check_era(r#"{"id":1,"result":{}}"#, Some("2026-07-28"), Era::Legacy);
    }
}

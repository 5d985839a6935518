//! A request for a WebSocket: what it must say, and how a browser shows its key.
//!
//! A page cannot set headers for a WebSocket, only name sub-protocols. So a key may be one: `bearer.KEY`, or `bearer64.`
//! and the key in base64url where it has characters that a sub-protocol must not have. It counts as
//! `Authorization: Bearer KEY`, is taken off the request before anything else looks at it, and is never said back.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::body::{Body, Incoming};
use hyper::header::{
    AUTHORIZATION, CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, Request};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::super::headers::only_text;
use super::super::refusal::Refusal;
use super::super::response::{HttpResponse, empty};
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use crate::call::CallError;
use crate::clock::now;
use crate::observe::metrics::Limit;
use crate::permits::Permit;
use crate::session::entry::Entry;

/// The sub-protocol of MCP.
const MCP: &str = "mcp";

/// The version of WebSockets.
const VERSION: &str = "13";

/// A WebSocket that was granted: it begins when its response was sent.
#[derive(Debug, Clone)]
pub struct WebSocketOpening {
    /// Gives the connection.
    pub upgrade: OnUpgrade,
    /// The server it is for.
    pub entry: Arc<Entry>,
    /// Who opened it.
    pub caller: Caller,
    /// One of all that may be open.
    pub permit: Arc<Permit>,
}

/// The sub-protocols that a client offers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Whether `mcp` is among them.
    has_mcp: bool,
}

impl Offered {
    /// Takes the sub-protocols off a request. A key among them becomes its `Authorization`.
    ///
    /// # Errors
    ///
    /// A key that is shown twice, or is none.
    pub fn take(headers: &mut HeaderMap) -> Result<Self, Refusal> {
        let mut offered = Self::default();
        let mut keys = Vec::new();
        for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
            for name in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if let Some(key) = name.strip_prefix(b"bearer.") {
                    keys.push(key.to_vec());
                } else if let Some(key) = name.strip_prefix(b"bearer64.") {
                    let key = URL_SAFE_NO_PAD.decode(key.trim_ascii_end());
                    let text = "the key behind `bearer64.` is not base64url without padding";
                    keys.push(key.map_err(|_| Refusal::invalid(400, text))?);
                } else {
                    offered.has_mcp |= name == MCP.as_bytes();
                }
            }
        }
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
        let Some(key) = keys.pop() else { return Ok(offered) };
        if !keys.is_empty() || headers.contains_key(AUTHORIZATION) {
            let text = "show one key, once: in Authorization, or as one sub-protocol";
            return Err(Refusal::invalid(400, text));
        }
        let value = HeaderValue::from_bytes(&[b"Bearer ", &key[..]].concat());
        let text = "the key among the sub-protocols cannot be that of a bridge";
        let mut value = value.map_err(|_| Refusal::invalid(400, text))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok(offered)
    }
}

/// Answers a request to `/ws/{server}`.
///
/// # Errors
///
/// Why no WebSocket is opened.
pub fn open(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    request: Request<Incoming>,
    offered: &Offered,
    caller: &Caller,
) -> Result<HttpResponse, Refusal> {
    let accept = check(request.method(), request.headers())?;
    if !request.body().is_end_stream() {
        return Err(Refusal::invalid(400, "a request for a WebSocket has no body").closing());
    }
    if site.leaving.is_cancelled() {
        let why = CallError::Stopping;
        return Err(Refusal::of_call(why.status(), &why));
    }
    let permit = site.websockets.try_take(&caller.person.principal, now()).ok_or_else(|| {
        site.metrics.refused(Limit::WebSockets);
        let limit = site.websockets.limit();
        let what = format!(
            "this client, or all together, have as many of {limit} WebSockets open as they may"
        );
        let why = CallError::Busy { what, retry_after_seconds: 10 };
        Refusal::of_call(why.status(), &why)
    })?;
    let mut response = empty(101);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if offered.has_mcp {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(MCP));
    }
    response.extensions_mut().insert(WebSocketOpening {
        upgrade: hyper::upgrade::on(request),
        entry: Arc::clone(entry),
        caller: caller.clone(),
        permit: Arc::new(permit),
    });
    Ok(response)
}

/// Whether this is a request for a WebSocket; gives what proves that it was understood.
fn check(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    if method != Method::GET {
        let text = "GET opens a WebSocket here; a client that posts finds MCP at /mcp/NAME";
        return Err(Refusal::not_allowed(text, "GET"));
    }
    if !lists(headers, &UPGRADE, "websocket") || !lists(headers, &CONNECTION, "upgrade") {
        let text = "MCP over WebSocket is spoken here: connect with a WebSocket client to ws://HOST/ws/NAME (wss://HOST/ws/NAME where this is https), sub-protocol \
                    `mcp`; over plain HTTP, MCP is at /mcp/NAME";
        return Err(upgrade_required(text));
    }
    if only_text(headers, &SEC_WEBSOCKET_VERSION)? != Some(VERSION) {
        return Err(upgrade_required("only version 13 of WebSocket is spoken here"));
    }
    let key = only_text(headers, &SEC_WEBSOCKET_KEY)?.unwrap_or_default().as_bytes();
    if STANDARD.decode(key).map_or(0, |nonce| nonce.len()) != 16 {
        let text = "Sec-WebSocket-Key must be 16 bytes in base64";
        return Err(Refusal::invalid(400, text));
    }
    HeaderValue::try_from(derive_accept_key(key))
        .map_err(|_| Refusal::invalid(400, "Sec-WebSocket-Key cannot be answered"))
}

fn upgrade_required(text: &str) -> Refusal {
    Refusal::invalid(426, text)
        .with_header(UPGRADE, HeaderValue::from_static("websocket"))
        .with_header(CONNECTION, HeaderValue::from_static("Upgrade"))
        .with_header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION))
}

/// Whether a header has this word in its list.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|it| it.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a request with these sub-protocols: its `Authorization`, and whether `mcp` is offered.
    #[track_caller]
    fn check_offer(
        values: &[&str],
        authorization: Option<&str>,
        expected: Result<(&str, bool), &str>,
    ) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
        }
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value.parse().unwrap());
        }
        let found = Offered::take(&mut headers);
        assert!(!headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || found.is_err());
        let shown = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        let shown = String::from_utf8_lossy(shown).into_owned();
        match (found, expected) {
            (Ok(offered), Ok(expected)) => assert_eq!((&*shown, offered.has_mcp), expected),
            (Err(refusal), Err(words)) => assert!(refusal.text().contains(words), "{refusal:?}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn a_key_among_the_sub_protocols_counts_as_one_in_a_header() {
        check_offer(&[], None, Ok(("", false)));
        check_offer(&["mcp"], Some("Bearer a"), Ok(("Bearer a", true)));
        check_offer(&["MCP, graphql"], None, Ok(("", false)));
        check_offer(&["mcp, bearer.k-1"], None, Ok(("Bearer k-1", true)));
        check_offer(&["bearer.k", "mcp"], None, Ok(("Bearer k", true)));
        check_offer(&["bearer64.SzovPSAx"], None, Ok(("Bearer K:/= 1", false)));
        check_offer(&["bearer64.+"], None, Err("base64url"));
        check_offer(&["bearer64.Cg"], None, Err("cannot be that of a bridge"));
        check_offer(&["bearer.a, bearer.a"], None, Err("one key, once"));
        check_offer(&["bearer.a"], Some("Bearer a"), Err("one key, once"));
    }
}

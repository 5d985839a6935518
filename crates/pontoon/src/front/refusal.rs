//! A refusal: the one way to refuse a request, used with `?`, and the one place that makes a response of it.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use hyper::header::{ALLOW, CONNECTION, HeaderName, HeaderValue, RETRY_AFTER};
use pontoon_wire::ErrorObject;
use pontoon_wire::error::code;

use super::response::{HttpResponse, json};
use crate::call::CallError;
use crate::observe::refusals::{RefusalNote, Refusals};

/// Why a request is refused, and everything its response says. Small, because every result here has room for one.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(Box<RefusalParts>);

#[derive(Debug, PartialEq, Eq)]
struct RefusalParts {
    status: u16,
    words: RefusalWords,
    /// The id of the request, if it is known.
    id: Option<Bytes>,
    /// Headers beside the type of the content, in their order.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The status that the log tells; `None` if it is no refusal but the failure of a server.
    logged_status: Option<u16>,
    /// Who asked, as far as it is known.
    who: Option<String>,
}

/// What the client reads.
#[derive(Debug, PartialEq, Eq)]
enum RefusalWords {
    /// A JSON-RPC error.
    Error(ErrorObject),
    /// The form that mcpo's clients know.
    Detail(Cow<'static, str>),
}

impl Refusal {
    /// A refusal with this status, code and text.
    pub fn new(status: u16, code: i64, text: impl Into<String>) -> Self {
        Self::with_error(status, ErrorObject::new(code, text))
    }

    /// A request that is wrong in itself.
    pub fn invalid(status: u16, text: impl Into<String>) -> Self {
        Self::new(status, code::INVALID_REQUEST, text)
    }

    /// A refusal with this status and error.
    pub fn with_error(status: u16, error: ErrorObject) -> Self {
        Self::with_words(status, RefusalWords::Error(error))
    }

    /// A refusal where no MCP client asks.
    pub fn plain(status: u16, detail: &'static str) -> Self {
        Self::with_words(status, RefusalWords::Detail(Cow::Borrowed(detail)))
    }

    /// A method that is not answered here; `allow` are those that are.
    pub fn not_allowed(text: &str, allow: &'static str) -> Self {
        Self::new(405, -32000, text).with_header(ALLOW, HeaderValue::from_static(allow))
    }

    /// A call that got no answer, told with this status, and when another try is worth it.
    pub fn of_call(status: u16, why: &CallError) -> Self {
        let mut refusal = Self::with_error(status, why.to_error());
        refusal.0.logged_status = why.is_refusal().then(|| why.status());
        match why.retry_after_seconds() {
            Some(seconds) => refusal.retry_after(seconds),
            None => refusal,
        }
    }

    fn with_words(status: u16, words: RefusalWords) -> Self {
        Self(Box::new(RefusalParts {
            status,
            words,
            id: None,
            headers: Vec::new(),
            logged_status: Some(status),
            who: None,
        }))
    }

    /// The same, as the answer to the request with this id.
    pub fn with_id(mut self, id: Option<Bytes>) -> Self {
        self.0.id = id;
        self
    }

    /// The same with one more header.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The same, and says when another try is worth it.
    pub fn retry_after(self, seconds: u32) -> Self {
        self.with_header(RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// The same, and the connection ends: what is left of the body is not worth reading.
    pub fn closing(self) -> Self {
        self.with_header(CONNECTION, HeaderValue::from_static("close"))
    }

    /// The same, of a request that this one made.
    pub fn asked_by(mut self, who: String) -> Self {
        self.0.who = Some(who);
        self
    }

    /// The id of the request, if it is known.
    pub fn id(&self) -> Option<Bytes> {
        self.0.id.clone()
    }

    /// The JSON-RPC error that says the same, where there is no HTTP.
    pub fn into_error(self) -> ErrorObject {
        match self.0.words {
            RefusalWords::Error(error) => error,
            RefusalWords::Detail(detail) => ErrorObject::new(code::INVALID_REQUEST, detail),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// What the client reads.
    pub fn text(&self) -> &str {
        match &self.0.words {
            RefusalWords::Error(error) => &error.message,
            RefusalWords::Detail(detail) => detail,
        }
    }

    /// Tells the log of a request to `server` that came from this address.
    pub fn log(&self, refusals: &Refusals, server: &str, from: IpAddr) {
        let parts = &*self.0;
        let (RefusalWords::Error(error), Some(status)) = (&parts.words, parts.logged_status) else {
            return;
        };
        let who = parts.who.as_deref().unwrap_or("unknown");
        let (code, why) = (error.code, error.message.as_str());
        refusals.tell(&RefusalNote { status, code, server, who: &who, from, why });
    }

    /// The response where no MCP client asks: the same in the form that mcpo's clients know.
    pub fn into_detail(mut self) -> HttpResponse {
        if let RefusalWords::Error(error) = self.0.words {
            self.0.words = RefusalWords::Detail(Cow::Owned(error.message));
        }
        self.into_response()
    }

    /// The response.
    pub fn into_response(self) -> HttpResponse {
        let RefusalParts { status, words, id, headers, .. } = *self.0;
        let text = match words {
            RefusalWords::Error(error) => {
                let id = id.as_deref().map_or("null".into(), String::from_utf8_lossy);
                error.answer(&id)
            }
            RefusalWords::Detail(detail) => {
                format!("{{\"detail\":{}}}", pontoon_wire::quoted(&detail))
            }
        };
        let mut response = json(status, &Bytes::from(text).into());
        for (name, value) in headers {
            response.headers_mut().append(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::body::ResponseBody;

    /// The status, the headers and the body on one line each.
    #[track_caller]
    fn check(refusal: Refusal, expected: &str) {
        let response = refusal.into_response();
        let mut found = response.status().as_u16().to_string();
        for (name, value) in response.headers() {
            found += &format!("\n{name}: {}", value.to_str().unwrap());
        }
        let ResponseBody::Text(pieces) = response.into_body() else { panic!("a text is expected") };
        let body: Vec<u8> = pieces.into_iter().flatten().collect();
        assert_eq!(found + "\n" + std::str::from_utf8(&body).unwrap(), expected);
    }

    #[test]
    fn a_refusal_is_an_error_under_the_id_of_its_request() {
        let refusal = || Refusal::invalid(400, "no \"good\"");
        check(
            refusal(),
            "400\ncontent-type: application/json\n\
             {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"no \\\"good\\\"\"}}",
        );
        check(
            refusal().closing().retry_after(5).with_id(Some(Bytes::from_static(b"\"7\""))),
            "400\ncontent-type: application/json\nconnection: close\nretry-after: 5\n\
             {\"jsonrpc\":\"2.0\",\"id\":\"7\",\"error\":{\"code\":-32600,\"message\":\"no \\\"good\\\"\"}}",
        );
        check(
            Refusal::not_allowed("only GET", "GET"),
            "405\ncontent-type: application/json\nallow: GET\n\
             {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"only GET\"}}",
        );
    }

    #[test]
    fn where_no_mcp_client_asks_it_is_in_the_words_of_mcpo() {
        let expected = "403\ncontent-type: application/json\n{\"detail\":\"Invalid API key\"}";
        check(Refusal::plain(403, "Invalid API key"), expected);
    }

    #[test]
    fn what_a_server_failed_at_is_no_refusal_for_the_log() {
        let logged = |why: &CallError| Refusal::of_call(200, why).0.logged_status;
        assert_eq!(logged(&CallError::ServerFailed("it ended".to_owned())), None);
        assert_eq!(logged(&CallError::Stopping), Some(503));
    }
}

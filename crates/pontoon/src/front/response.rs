//! Responses that are not streams: JSON, errors, empty ones.

use bytes::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use hyper::{Response, StatusCode};
use pontoon_wire::{ErrorObject, Text};

use super::body::{EventBody, ResponseBody};
use super::mcp::sse_stream::SseBody;
use crate::call::{CallError, Receipt};

/// A response of ours.
pub type Answer = Response<ResponseBody>;

/// A status and no body.
pub fn empty(status: u16) -> Answer {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A JSON text.
pub fn json(status: u16, text: &Text) -> Answer {
    let mut response = empty(status);
    *response.body_mut() = ResponseBody::text(text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON-RPC error, under the id of the request if it is known.
pub fn error(status: u16, error: &ErrorObject, id: Option<&[u8]>) -> Answer {
    let id = id.map_or("null".into(), String::from_utf8_lossy);
    let mut response = json(status, &Bytes::from(error.answer(&id)).into());
    let why = Why { status, code: error.code, text: error.message.clone() };
    response.extensions_mut().insert(why);
    response
}

/// Why a request was refused, for the log.
#[derive(Debug, Clone)]
pub struct Why {
    /// The HTTP status, or the one that would say the same.
    pub status: u16,
    /// The JSON-RPC code.
    pub code: i64,
    /// What the client is told.
    pub text: String,
}

/// Why a call got no answer, and when another try is worth it.
pub fn failed(status: u16, why: &CallError, id: Option<&[u8]>) -> Answer {
    let mut response = error(status, &why.to_error(), id);
    match response.extensions_mut().get_mut::<Why>().filter(|_| why.is_refusal()) {
        Some(told) => told.status = why.status(),
        None => drop(response.extensions_mut().remove::<Why>()),
    }
    retry_after(response, why.retry_after_seconds())
}

/// An error with the methods that are allowed here.
pub fn not_allowed(text: &str, allow: &'static str) -> Answer {
    let mut response = error(405, &ErrorObject::new(-32000, text), None);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Says when another try is worth it.
pub fn retry_after(mut response: Answer, seconds: Option<u32>) -> Answer {
    if let Some(seconds) = seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// How many bytes the addresses of files may take in the head of a response.
const MAX_LINKS: usize = 2048;

/// Tells which job recorded a call, and where its files are.
pub fn with_receipt(mut response: Answer, receipt: Option<Box<Receipt>>) -> Answer {
    let Some(receipt) = receipt else { return response };
    let headers = response.headers_mut();
    if let Ok(job) = HeaderValue::from_str(&receipt.job.to_string()) {
        headers.insert("x-mcpo-job-id", job);
    }
    let mut room = MAX_LINKS;
    for (_, link) in &receipt.files {
        // Proxies refuse a head that is too large, and with it the whole answer.
        let Some(left) = usize::checked_sub(room, link.len()) else { break };
        room = left;
        // Addresses are percent-encoded, so they fit into a header.
        if let Ok(link) = HeaderValue::from_str(&format!("<{link}>; rel=\"related\"")) {
            headers.append(LINK, link);
        }
    }
    response
}

/// A stream of events.
pub fn events(body: EventBody) -> Answer {
    streamed(ResponseBody::Events(Box::new(body)))
}

/// The one stream of a client of the older transport.
pub fn sse(body: SseBody) -> Answer {
    streamed(ResponseBody::Sse(Box::new(body)))
}

/// The headers that keep proxies from holding a stream back.
fn streamed(body: ResponseBody) -> Answer {
    let mut response = empty(200);
    *response.body_mut() = body;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

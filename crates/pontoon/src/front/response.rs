//! Responses in their plainest forms: a status, a JSON text, a stream.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use pontoon_wire::Text;

use super::body::ResponseBody;

/// A response to an HTTP request.
pub type HttpResponse = Response<ResponseBody>;

/// A status and no body.
pub fn empty(status: u16) -> HttpResponse {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A response without a body, for a message that wants no answer.
pub fn accepted() -> HttpResponse {
    empty(202)
}

/// A JSON text.
pub fn json(status: u16, text: &Text) -> HttpResponse {
    let mut response = empty(status);
    *response.body_mut() = ResponseBody::text(text);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A stream of events, with the headers that keep proxies from holding it back.
pub fn streamed(body: ResponseBody) -> HttpResponse {
    let mut response = empty(200);
    *response.body_mut() = body;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

//! What went wrong, in mcpo's words: `{"detail": ...}` and a status.

use bytes::Bytes;
use pontoon_schema::Misfit;
use pontoon_wire::error::code;
use pontoon_wire::{json, quoted, string_value};

use super::super::response::{HttpResponse, json as json_response};
use super::result;
use crate::call::CallError;

/// A status and a detail that is a text.
pub(super) fn plain(status: u16, detail: &str) -> HttpResponse {
    with_detail(status, &quoted(detail))
}

/// Nothing is there.
pub(super) fn not_found() -> HttpResponse {
    plain(404, "Not Found")
}

/// The client is gone, and reads this no more.
pub(super) fn cancelled() -> HttpResponse {
    plain(499, "the call was cancelled")
}

/// A call that got no answer. What a server failed at is 500, as mcpo has it.
pub(super) fn of_call(why: &CallError) -> HttpResponse {
    match why {
        CallError::Misfits(misfits) => with_detail(422, misfits),
        CallError::Told(_, 404) => not_found(),
        CallError::ServerFailed(_) | CallError::StateLost(_) | CallError::OutcomeUnknown(_) => {
            with_message(500, &why.to_string(), None)
        }
        _ => with_message(why.status(), &why.to_string(), None),
    }
}

/// A JSON-RPC error of the server, with the status that mcpo gives its code.
pub(super) fn of_error(error: &[u8]) -> HttpResponse {
    let number = json::find(error, "code").and_then(|raw| std::str::from_utf8(raw).ok());
    let status = match number.and_then(|number| number.parse().ok()) {
        Some(code::PARSE | code::INVALID_REQUEST) => 400,
        Some(code::METHOD_NOT_FOUND) => 404,
        Some(code::INVALID_PARAMS) => 422,
        _ => 500,
    };
    let message = json::find(error, "message").and_then(string_value).unwrap_or_default();
    let data = json::find(error, "data").filter(|data| *data != b"null");
    let data = data.and_then(|data| std::str::from_utf8(data).ok());
    with_message(status, &message, data)
}

/// A body that does not fit.
pub(super) fn of_misfits(misfits: &[Misfit]) -> HttpResponse {
    with_detail(422, &Misfit::list(misfits))
}

/// A tool that says that it failed. Its result ends with this many blocks that the bridge added.
pub(super) fn of_result(result: &[u8], added: usize) -> HttpResponse {
    let text = result::in_words(result, added);
    let text = if text.is_empty() { "Unknown tool execution error" } else { &text };
    with_message(500, text, None)
}

/// A body that is JSON, but none that a message can hold.
pub(super) fn unreadable(why: &str) -> HttpResponse {
    with_message(400, &format!("the body cannot be passed on: {why}"), None)
}

/// What is to be said of a body that is no JSON: where it is not, and why. No body at all is well.
pub(super) fn of_body(body: &[u8]) -> Option<HttpResponse> {
    if body.is_empty() {
        return None;
    }
    let Ok(text) = std::str::from_utf8(body) else {
        return Some(plain(400, "There was an error parsing the body"));
    };
    Misfit::of_text(text).map(|misfit| of_misfits(&[misfit]))
}

fn with_message(status: u16, message: &str, data: Option<&str>) -> HttpResponse {
    let data = data.map(|data| format!(",\"data\":{data}")).unwrap_or_default();
    with_detail(status, &format!("{{\"message\":{}{data}}}", quoted(message)))
}

fn with_detail(status: u16, detail: &str) -> HttpResponse {
    json_response(status, &Bytes::from(format!("{{\"detail\":{detail}}}")).into())
}

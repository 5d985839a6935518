//! How the outcome of a call becomes a response: JSON where it came first, else a stream of events.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{HeaderValue, RETRY_AFTER};
use pontoon_wire::error::code;

use super::super::body::ResponseBody;
use super::super::receipt::add_receipt;
use super::super::response::{HttpResponse, empty, json, streamed};
use super::event_body::{EventBody, EventOptions};
use crate::call::{Outcome, Receipt};
use crate::outbox::Next;
use crate::session::stream::{Stream, outcome_text};

/// The response to a legacy request whose outcome came before anything else.
pub fn legacy_json(outcome: Outcome, id: &Bytes) -> HttpResponse {
    let seconds = outcome.retry_after_seconds();
    whole(200, seconds, outcome, id)
}

/// The response to a modern request whose outcome came before anything else.
pub fn modern_json(outcome: Outcome, id: &Bytes, is_probe: bool) -> HttpResponse {
    let (status, seconds) = match &outcome {
        Outcome::Answer(_, code, _) => (modern_status(*code), None),
        // A client that probes takes a server error as the end; a client error lets it fall back.
        Outcome::Failed(..) if is_probe => (400, None),
        Outcome::Failed(why, _) => (why.status(), why.retry_after_seconds()),
    };
    whole(status, seconds, outcome, id)
}

/// The response to a request without a session whose outcome comes by itself. The client has no session that an HTTP
/// status could end, so it gets the one of a failure; what the server answered, errors too, is 200.
pub fn bare_json(outcome: Outcome, id: &Bytes) -> HttpResponse {
    let (status, seconds) = match &outcome {
        Outcome::Answer(..) => (200, None),
        Outcome::Failed(why, _) => (why.status(), why.retry_after_seconds()),
    };
    whole(status, seconds, outcome, id)
}

/// The status that goes with an answer of a modern server.
fn modern_status(error_code: Option<i64>) -> u16 {
    match error_code {
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => 400,
        Some(code::PARSE | code::INVALID_REQUEST) => 400,
        Some(code::METHOD_NOT_FOUND) => 404,
        _ => 200,
    }
}

fn whole(status: u16, retry_after: Option<u32>, outcome: Outcome, id: &Bytes) -> HttpResponse {
    let receipt = outcome.receipt();
    let mut response = json(status, &outcome_text(outcome, id));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(receipt) = receipt {
        add_receipt(&mut response, &receipt);
    }
    response
}

/// A stream of events, beginning with what was taken from it already. Its head tells what is known by now: the job,
/// and of an outcome that came first the files too.
pub fn events(stream: &Arc<Stream>, first: Option<Next>, options: EventOptions) -> HttpResponse {
    let receipt = match &first {
        Some(Next::End(Some(outcome))) => outcome.receipt().map(|receipt| *receipt),
        _ => stream.outbox.job().map(|job| Receipt { job, files: Vec::new(), blocks: 0 }),
    };
    match stream.connect(None) {
        Ok(mut connection) => {
            let first = first.map(|first| connection.take(first));
            let mut response = event_stream(EventBody::new(connection, first, options));
            receipt.iter().for_each(|receipt| add_receipt(&mut response, receipt));
            response
        }
        Err(_) => empty(500),
    }
}

/// The response that is this stream of events.
pub fn event_stream(body: EventBody) -> HttpResponse {
    streamed(ResponseBody::Events(Box::new(body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::CallError;

    fn id() -> Bytes {
        Bytes::from_static(b"7")
    }

    fn failed() -> Outcome {
        let what = "busy".to_owned();
        Outcome::Failed(CallError::Busy { what, retry_after_seconds: 5 }, None)
    }

    fn answer(code: Option<i64>) -> Outcome {
        Outcome::Answer(Bytes::from_static(b"{}").into(), code, None)
    }

    #[test]
    fn a_legacy_client_has_every_outcome_with_200_and_a_hint_when_to_try_again() {
        // Another status would end its session.
        for outcome in [answer(None), answer(Some(code::METHOD_NOT_FOUND)), failed()] {
            let hint = outcome.retry_after_seconds().map(|seconds| seconds.to_string());
            let response = legacy_json(outcome, &id());
            assert_eq!(response.status(), 200);
            let told =
                response.headers().get(RETRY_AFTER).map(|it| it.to_str().unwrap().to_owned());
            assert_eq!(told, hint);
        }
    }

    #[test]
    fn a_modern_client_is_told_by_the_status() {
        for (code, status) in [
            (None, 200),
            (Some(code::INVALID_PARAMS), 200),
            (Some(code::METHOD_NOT_FOUND), 404),
            (Some(code::HEADER_MISMATCH), 400),
            (Some(code::UNSUPPORTED_VERSION), 400),
        ] {
            assert_eq!(modern_json(answer(code), &id(), false).status(), status, "{code:?}");
        }
        let busy = modern_json(failed(), &id(), false);
        assert_eq!(
            (busy.status().as_u16(), busy.headers()[RETRY_AFTER].as_bytes()),
            (429, &b"5"[..])
        );
        // A client that probes takes a server error as the end.
        assert_eq!(modern_json(failed(), &id(), true).status(), 400);
    }
}

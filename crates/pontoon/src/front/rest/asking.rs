//! One call of a client that hears nothing but its outcome, and cancels it by going away.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderValue, RETRY_AFTER};
use pontoon_wire::{Message, Revision};
use tokio_util::sync::CancellationToken;

use super::super::receipt::add_receipt;
use super::super::response::HttpResponse;
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use crate::call::{Call, Outcome, Reply};
use crate::outbox::{Next, Outbox};
use crate::session::Arrival;
use crate::session::entry::Entry;

/// How long a document waits until it is known what the server offers: Open WebUI waits ten seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// Makes a call and waits for its outcome, of which a failure has a status; `None` if it was cancelled.
pub(super) async fn ask(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    caller: &Caller,
    request: Message,
    id: Bytes,
    arrival: Arrival<'static>,
) -> Option<Outcome> {
    let outbox = Arc::new(Outbox::default());
    outbox.take_whole();
    let reply = Reply::new(id, Arc::clone(&outbox), None).with_status();
    let (cancel, clock) = (CancellationToken::new(), entry.back.clock(&request));
    let client = caller.bare_client(entry, Revision::NEWEST_LEGACY);
    let call = Call {
        request,
        client,
        cancel: cancel.clone(),
        clock,
        may_repeat: false,
        promise: None,
        reply,
    };
    let going_away = cancel.drop_guard();
    site.sessions.submit(entry, arrival, call).await;
    loop {
        // Progress and the like are for clients with a stream.
        if let Next::End(outcome) = outbox.next().await {
            going_away.disarm();
            return outcome;
        }
    }
}

/// Adds to the head of a response what the outcome says besides.
pub(super) fn add_to_head(response: &mut HttpResponse, outcome: &Outcome) {
    if let Some(seconds) = outcome.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(receipt) = outcome.receipt() {
        add_receipt(response, &receipt);
    }
}

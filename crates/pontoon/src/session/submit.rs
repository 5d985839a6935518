//! A call on its way through the middle: answered here, refused, made to wait, or given to the server's back.

use std::sync::Arc;
use std::time::Instant;

use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Era, Kind as MessageKind, Message, Slot, method};
use tracing::Instrument;

use super::answered_here;
use super::catalog::Catalog;
use super::completed;
use super::entry::Entry;
use super::fitted::{self, CallAuthor, Fitted};
use super::legacy::{OpenCall, Session};
use super::sessions::{NoSession, Sessions};
use crate::back::Back;
use crate::call::{Call, CallError};
use crate::client::{Client, Key};
use crate::clock::{Stage, now, since};
use crate::observe::metrics::{Limit, RequestKind};

/// How a request came.
#[derive(Debug)]
pub enum Arrival<'h> {
    /// In the session of a legacy client.
    InSession(Arc<Session>),
    /// By itself, as those of modern clients do, with these headers.
    Alone(Vec<(&'h str, &'h [u8])>),
    /// By itself, over a stream that has no headers.
    Described,
    /// From a legacy client that opened no session.
    Bare,
    /// From a program that calls tools by JSON-RPC and means what it writes.
    AsWritten,
    /// From a client that knows tools as paths: the arguments of the call are the body of its request.
    Body,
}

/// The same, with the call noted as open where it is one of a session.
enum Arrived<'h> {
    InSession(OpenCall),
    Alone(Vec<(&'h str, &'h [u8])>),
    Described,
    Bare,
    AsWritten,
    Body,
}

impl Arrived<'_> {
    fn into_open(self) -> Option<OpenCall> {
        match self {
            Self::InSession(open) => Some(open),
            Self::Alone(_) | Self::Described | Self::Bare | Self::AsWritten | Self::Body => None,
        }
    }
}

impl Sessions {
    /// Takes a call to a server, and sees that it is answered. It waits until it is known what the server
    /// offers; a call that is dropped meanwhile was not made.
    ///
    /// Not an `async fn`: a call that can go on at once does so here, and is not moved into a future first.
    pub fn submit<'a>(
        self: &'a Arc<Self>,
        entry: &'a Arc<Entry>,
        arrival: Arrival<'a>,
        call: Call,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        let waiting = self.go_on(entry, arrival, call).map(|(arrived, call, began)| {
            Box::pin(self.submit_when_known(entry, arrived, call, began))
        });
        async move {
            if let Some(waiting) = waiting {
                waiting.await;
            }
        }
    }

    /// The same for a front that hears more from its client meanwhile: a call that has to wait does so in a task
    /// of its own.
    pub fn submit_aside(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        arrival: Arrival<'static>,
        call: Call,
    ) {
        let Some((arrived, call, began)) = self.go_on(entry, arrival, call) else { return };
        let (sessions, entry) = (Arc::clone(self), Arc::clone(entry));
        let waiting = async move {
            sessions.submit_when_known(&entry, arrived, call, began).await;
        };
        self.tasks.spawn(waiting.in_current_span());
    }

    /// Goes on with a call as far as that is known; gives it back if it has to wait.
    fn go_on<'h>(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        arrival: Arrival<'h>,
        mut call: Call,
    ) -> Option<(Arrived<'h>, Call, Instant)> {
        let began = now();
        let session = match &arrival {
            Arrival::InSession(session) => Some(&*session.id),
            _ => None,
        };
        call.begin_trace(entry.back.tracer(), entry.back.server.name.as_str(), session);
        // Of the trace that it has from here on.
        call.reply.note_end_with(entry.back.note_of(&call.request, &call.client));
        let arrived = match arrival {
            Arrival::Alone(headers) => Some(Arrived::Alone(headers)),
            Arrival::Described => Some(Arrived::Described),
            Arrival::Bare => Some(Arrived::Bare),
            Arrival::AsWritten => Some(Arrived::AsWritten),
            Arrival::Body => Some(Arrived::Body),
            Arrival::InSession(session) => {
                let open = session.begin(call.reply.id().clone(), call.cancel.clone());
                open.map(Arrived::InSession)
            }
        };
        match (arrived, Self::known_now(entry)) {
            (None, _) => {
                let ended = ErrorObject::new(code::UNKNOWN_SESSION, NoSession::Unknown.to_string());
                call.reply.fail(CallError::Told(ended, 404));
                None
            }
            (Some(arrived), Some(catalog)) => {
                self.count_call(entry, &mut call, began);
                self.route(&catalog, entry, arrived, call);
                None
            }
            (Some(arrived), None) => Some((arrived, call, began)),
        }
    }

    /// Waits until it is known what the server offers, no longer than the client wants its answer.
    async fn submit_when_known(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        arrived: Arrived<'_>,
        mut call: Call,
        began: Instant,
    ) {
        let known = tokio::select! {
            biased;
            () = call.cancel.cancelled() => None,
            known = self.known(entry, &call) => Some(known),
        };
        self.count_call(entry, &mut call, began);
        match known {
            Some(Ok(catalog)) => self.route(&catalog, entry, arrived, call),
            Some(Err(why)) => refuse(call, why),
            None => call.reply.forget(),
        }
    }

    /// Counts a call from when it came.
    fn count_call(&self, entry: &Entry, call: &mut Call, began: Instant) {
        let kind = RequestKind::of(&call.request.method());
        call.reply.count(&entry.back.metrics, kind, &call.client, began);
        call.reply.count_bytes(&self.held);
    }

    fn route(
        self: &Arc<Self>,
        catalog: &Arc<Catalog>,
        entry: &Arc<Entry>,
        arrived: Arrived<'_>,
        mut call: Call,
    ) {
        count_tool(catalog, entry, &mut call);
        let call = match &arrived {
            Arrived::InSession(open) => answered_here::legacy(catalog, entry, open.session(), call),
            Arrived::Alone(headers) => answered_here::modern(catalog, entry, Some(headers), call),
            Arrived::Described => answered_here::modern(catalog, entry, None, call),
            Arrived::Bare | Arrived::AsWritten => answered_here::bare(catalog, entry, call),
            Arrived::Body => Some(call),
        };
        let Some(mut call) = call else { return };
        let child_era = catalog.child_era(call.client.era());
        let body = match arrived {
            Arrived::Body => call.request.copy(Slot::Arguments),
            _ => None,
        };
        if let Arrived::Body = arrived
            && let Err(why) = completed::complete(catalog, entry, &mut call)
        {
            return call.reply.fail(why);
        }
        let is_app = entry.back.app().is_some();
        if is_app {
            call.may_repeat = catalog.may_repeat(&call.request, child_era);
        }
        // By the name that the client sees, and by the server's own.
        if let Some(refusal) = answered_here::disabled(entry, &call.request) {
            return call.reply.error(&refusal);
        }
        let author = match arrived {
            Arrived::AsWritten => CallAuthor::Program,
            _ => CallAuthor::Model,
        };
        match fitted::fit(catalog, entry, author, &mut call) {
            Err(why) if matches!(arrived, Arrived::Body) => {
                return call.reply.fail(completed::in_their_words(why, body.as_deref()));
            }
            Err(why) => return refuse(call, why),
            Ok(Fitted::Same) => {}
            Ok(Fitted::Renamed) => {
                call.clock.set_time(entry.back.time_of(&call.request));
                if let Some(refusal) = answered_here::disabled(entry, &call.request) {
                    return call.reply.error(&refusal);
                }
            }
        }
        let is_listen = call.request.method() == method::LISTEN;
        if is_listen {
            match self.admission.admit_listen(&call.client) {
                Ok(permit) => call.reply.hold(permit),
                Err(busy) => return call.reply.fail(busy),
            }
        }
        let is_unnamed = call.client.key == Key::Unnamed;
        if is_app {
            entry.back.meet(&call.client);
        }
        if is_listen && (is_unnamed || is_app || !entry.back.server.mode.is_stateful()) {
            let (entry, catalog) = (Arc::clone(entry), Arc::clone(catalog));
            self.tasks.spawn(Arc::clone(self).listen_to_catalog(entry, catalog, call));
            return;
        }
        if is_unnamed {
            return call.reply.fail(self.unnamed(entry));
        }
        let mut must_wait = false;
        if !is_listen {
            match self.admission.admit(&entry.back, &call.client) {
                Ok(Some(permit)) => call.reply.hold(permit),
                Ok(None) => must_wait = true,
                Err(busy) => return call.reply.fail(busy),
            }
        }
        let open = arrived.into_open();
        let (sessions, back) = (Arc::clone(self), Arc::clone(&entry.back));
        // In a box, or all of it would be moved at each step on its way to its task.
        let taking = Box::pin(async move {
            let call = match must_wait {
                true => Box::pin(sessions.wait_for_turn(&back, call)).await,
                false => Some(call),
            };
            if let Some(call) = call {
                back.take(call, child_era).await;
            }
            drop(open);
        });
        self.tasks.spawn(taking.in_current_span());
    }

    /// Why a call is refused of which only the key without a name is known.
    fn unnamed(&self, entry: &Entry) -> CallError {
        self.admission.metrics.refused(Limit::Identity);
        let text = format!(
            "it is not known who asks: the API key that was shown has no name and may be anybody's, but the server \
             `{}` keeps a process or a folder for each person, so this call was not made. What to do: {}",
            entry.back.server.name, self.ways_to_say_who
        );
        CallError::Told(ErrorObject::new(code::FORBIDDEN, text), 403)
    }

    /// Waits until a call may run. `None` if it was cancelled, or its turn did not come.
    async fn wait_for_turn(&self, back: &Back, mut call: Call) -> Option<Call> {
        let server = back.server.name.as_str();
        call.clock.enter(Stage::Turn);
        let mut step = call.reply.step("queue");
        let began = now();
        let permit = tokio::select! {
            () = call.cancel.cancelled() => None,
            permit = call.clock.bound(self.admission.wait(back, &call.client)) => Some(permit),
        };
        back.metrics.waited(since(began));
        match permit {
            Some(Some(Ok(permit))) => {
                call.reply.hold(permit);
                return Some(call);
            }
            Some(Some(Err(busy))) => {
                step.iter_mut().for_each(|step| step.fail(busy.word()));
                call.reply.fail(busy);
            }
            Some(None) => {
                step.iter_mut().for_each(|step| step.fail("timeout"));
                let late = call.clock.timed_out(server);
                let why = match back.app() {
                    Some(_) => CallError::AppAway(format!("{late}. It was not made")),
                    None => late,
                };
                refuse(call, why);
            }
            None => {
                step.iter_mut().for_each(|step| step.fail("cancelled"));
                call.reply.forget();
            }
        }
        None
    }

    /// Takes a message of a legacy client that wants no answer.
    pub fn note(&self, entry: &Entry, session: &Session, client: &Client, message: &Message) {
        session.touch();
        if message.kind() == MessageKind::Answer {
            if !session.questions.answer(message) {
                tracing::debug!("an answer to no question was dropped");
            }
            return;
        }
        match message.method().as_ref() {
            method::INITIALIZED | method::PROGRESS => {}
            method::CANCELLED => session.cancel(message.raw(Slot::RequestId).unwrap_or_default()),
            _ => {
                let Some(catalog) = entry.known_to(Era::Legacy) else { return };
                entry.back.pass_on(client, catalog.child_era(Era::Legacy), message);
            }
        }
    }
}

/// Counts a call for the tool that it names, if the catalogue has that.
fn count_tool(catalog: &Catalog, entry: &Entry, call: &mut Call) {
    if call.request.method() != method::CALL_TOOL {
        return;
    }
    let (Some(name), Some(facts)) =
        (call.request.string(Slot::Name), catalog.facts(call.client.era()))
    else {
        return;
    };
    let name = facts.own_name(&name);
    call.reply.count_tool(entry.back.metrics.tool(name, || facts.offers_tool(name)));
}

/// Refuses a call. What is for the model to know is the result of its tool.
fn refuse(call: Call, why: CallError) {
    match why.for_model(&call.request, call.client.era()) {
        Some(result) => call.reply.fail_with_result(&why, &result),
        None => call.reply.fail(why),
    }
}

#[cfg(test)]
mod tests;

//! `subscriptions/listen`: a modern client that wants to hear of changes.
//!
//! A modern child gets the request itself. For a legacy child the bridge keeps the subscription: it
//! acknowledges what the child can offer, and passes the child's notifications on.

use std::sync::Arc;

use bytes::Bytes;
use pontoon_wire::{Era, Message, Rewrite, Slot, era, json, method, quoted};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::back::Back;
use crate::back::conversation::Conversation;
use crate::back::conversation::link::Purpose;
use crate::back::conversation::mailbox::{Mailbox, ServerEvent};
use crate::back::keep::demand::Use;
use crate::call::{Call, Reply};

/// How many resources one subscription may name.
pub const MAX_URIS: usize = 256;

/// What a subscription wants to hear.
#[derive(Debug, Default, Clone)]
pub struct Filter {
    tools: bool,
    prompts: bool,
    resources: bool,
    /// The resources whose updates are wanted.
    pub uris: Vec<String>,
}

impl Filter {
    /// The filter in a `subscriptions/listen` request.
    pub fn of(request: &Message) -> Self {
        let raw = request.raw(Slot::Notifications).unwrap_or(b"{}");
        let is_set = |name| json::find(raw, name) == Some(b"true");
        let uris = json::find(raw, "resourceSubscriptions").unwrap_or(b"[]");
        let uri = |range: std::ops::Range<usize>| {
            Some(pontoon_wire::string_value(&uris[range])?.into_owned())
        };
        Self {
            tools: is_set("toolsListChanged"),
            prompts: is_set("promptsListChanged"),
            resources: is_set("resourcesListChanged"),
            uris: json::elements(uris, 0..uris.len()).filter_map(uri).take(MAX_URIS).collect(),
        }
    }

    /// The part of it that a server with these capabilities can honour.
    pub fn within(&self, capabilities: &[u8]) -> Self {
        let offers = |name, member| {
            let capability = json::find(capabilities, name).unwrap_or(b"{}");
            json::find(capability, member) == Some(b"true")
        };
        Self {
            tools: self.tools && offers("tools", "listChanged"),
            prompts: self.prompts && offers("prompts", "listChanged"),
            resources: self.resources && offers("resources", "listChanged"),
            uris: if offers("resources", "subscribe") { self.uris.clone() } else { Vec::new() },
        }
    }

    /// Whether a notification is wanted.
    pub fn wants(&self, note: &Message) -> bool {
        match note.method().as_ref() {
            method::TOOLS_CHANGED => self.tools,
            method::PROMPTS_CHANGED => self.prompts,
            method::RESOURCES_CHANGED => self.resources,
            method::RESOURCE_UPDATED => {
                let uri = note.string(Slot::Uri).unwrap_or_default();
                self.uris.iter().any(|wanted| *wanted == uri)
            }
            _ => false,
        }
    }

    fn to_json(&self) -> String {
        let mut members = Vec::new();
        for (name, is_set) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if is_set {
                members.push(format!("\"{name}\":true"));
            }
        }
        if !self.uris.is_empty() {
            let uris: Vec<_> = self.uris.iter().map(|uri| quoted(uri)).collect();
            members.push(format!("\"resourceSubscriptions\":[{}]", uris.join(",")));
        }
        format!("{{{}}}", members.join(","))
    }

    /// The acknowledgement of a subscription with this id.
    pub fn acknowledgement(&self, id: &Bytes) -> Bytes {
        let id = String::from_utf8_lossy(id);
        Bytes::from(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{}\",\"params\":{{\"_meta\":{{{}:{id}}},\"notifications\":{}}}}}",
            method::ACKNOWLEDGED,
            quoted(Slot::MetaSubscriptionId.name()),
            self.to_json(),
        ))
    }
}

/// Ends a subscription in order.
pub fn end(reply: Reply) {
    let id = String::from_utf8_lossy(reply.id()).into_owned();
    let member = quoted(Slot::MetaSubscriptionId.name());
    reply.result(&format!("{{\"resultType\":\"complete\",\"_meta\":{{{member}:{id}}}}}"));
}

impl Back {
    /// Serves a subscription until the client leaves or the child ends.
    pub(crate) async fn take_listen(&self, call: Call, child_era: Era) {
        let Call { cancel, clock, client, reply, .. } = &call;
        match self.lease_unless(reply, cancel, clock, Use::Listen, client, child_era).await {
            None => call.reply.forget(),
            Some(Err(error)) => call.reply.fail(error),
            Some(Ok(lease)) if lease.era == Era::Modern => {
                relay(&lease, call, &self.stop, self.outputs.withdrawals()).await;
            }
            Some(Ok(lease)) => {
                translate(&lease, call, &self.stop, self.outputs.withdrawals()).await;
            }
        }
    }
}

/// A modern child's own subscription, passed through.
async fn relay(
    server: &Conversation,
    call: Call,
    stop: &CancellationToken,
    mut withdrawals: watch::Receiver<u64>,
) {
    let Call { request, cancel, reply, .. } = call;
    let filter = Filter::of(&request);
    let mut asked = server.link.ask(Rewrite::new(request), None, Purpose::Listen);
    loop {
        let heard = tokio::select! {
            () = cancel.cancelled() => return reply.forget(),
            () = stop.cancelled() => return end(reply),
            Ok(()) = withdrawals.changed() => {
                tell_of_tools(&filter, &reply);
                continue;
            }
            heard = asked.next_event() => heard,
        };
        match heard {
            ServerEvent::Note(note) => reply.note(note),
            ServerEvent::Answer(answer) => return reply.answer(answer),
            ServerEvent::Log(_)
            | ServerEvent::Question(_)
            | ServerEvent::Resumed(_)
            | ServerEvent::Release => {}
            _ => return end(reply),
        }
    }
}

/// A subscription kept by the bridge over a legacy child's notifications.
async fn translate(
    server: &Conversation,
    call: Call,
    stop: &CancellationToken,
    mut withdrawals: watch::Receiver<u64>,
) {
    let Call { request, cancel, reply, .. } = call;
    let filter = Filter::of(&request).within(server.capabilities());
    let mailbox = Arc::new(Mailbox::default());
    let _listening = {
        let (filter, mailbox, id) = (filter.clone(), Arc::clone(&mailbox), reply.id().clone());
        server.link.listen(Arc::new(move |note| {
            if filter.wants(note) {
                mailbox.push(ServerEvent::Note(era::to_modern_note(note, &id).into()));
            }
        }))
    };
    reply.note(filter.acknowledgement(reply.id()).into());
    filter.uris.iter().for_each(|uri| server.subscribe(uri));
    loop {
        tokio::select! {
            () = cancel.cancelled() => return reply.forget(),
            () = stop.cancelled() => return end(reply),
            () = server.link.gone() => return end(reply),
            Ok(()) = withdrawals.changed() => tell_of_tools(&filter, &reply),
            heard = mailbox.next() => if let ServerEvent::Note(note) = heard { reply.note(note) },
        }
    }
}

/// A tool has lost its promise, which no server says.
fn tell_of_tools(filter: &Filter, reply: &Reply) {
    let note = Message::own(crate::call::plain_notification(method::TOOLS_CHANGED).to_vec());
    if filter.wants(&note) {
        reply.note(era::to_modern_note(&note, reply.id()).into());
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::Revision;

    use super::*;
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{Pair, STATEFUL, client, result, serve_legacy};

    #[tokio::test(start_paused = true)]
    async fn a_modern_client_hears_of_changes_at_a_legacy_server_until_its_child_goes() {
        // A server whose tools change with each call.
        let servers = InMemoryServers::new(|end| {
            serve_legacy(end, |message, id| match message.method() == method::CALL_TOOL {
                true => {
                    let changed = String::from_utf8(
                        crate::call::plain_notification(method::TOOLS_CHANGED).to_vec(),
                    );
                    vec![changed.unwrap(), result(id, "{\"content\":[]}")]
                }
                false => Vec::new(),
            })
        });
        let pair = Pair::new(servers, |server| server.mode = STATEFUL);
        let ada = client(Revision::NEWEST_MODERN, "ada", "{}");
        let wanted = "{\"notifications\":{\"toolsListChanged\":true,\"promptsListChanged\":true}}";
        let listening = pair.call(&ada, Era::Legacy, method::LISTEN, wanted);
        let acknowledged = listening.message().await;
        assert_eq!(acknowledged.method(), method::ACKNOWLEDGED);
        let taken = acknowledged.raw(Slot::Notifications).unwrap();
        assert_eq!(taken, b"{\"toolsListChanged\":true}", "it has no prompts that change");
        pair.call_tool(&ada, "x").await;
        assert_eq!(listening.message().await.method(), method::TOOLS_CHANGED);
        pair.back.end_session("ada");
        pair.back.stop.cancel();
        assert!(listening.answer().await.contains("complete"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_modern_child_has_the_subscription_itself_and_ends_it_by_its_answer() {
        // It acknowledges, says that its tools changed, and ends the subscription.
        let servers = InMemoryServers::new(|mut end| async move {
            while let Some(line) = end.next_line().await {
                let message = Message::parse(line.as_bytes()).unwrap();
                let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap()).into_owned();
                assert_eq!(message.method(), method::LISTEN);
                let member = quoted(Slot::MetaSubscriptionId.name());
                for note in [method::ACKNOWLEDGED, method::TOOLS_CHANGED] {
                    let params = format!("{{\"_meta\":{{{member}:{id}}},\"notifications\":{{}}}}");
                    end.say(&format!(
                        "{{\"jsonrpc\":\"2.0\",\"method\":\"{note}\",\"params\":{params}}}"
                    ))
                    .await;
                }
                end.say(&result(&id, "{\"resultType\":\"complete\"}")).await;
            }
        });
        let pair = Pair::new(servers, |server| server.mode = STATEFUL);
        let ada = client(Revision::NEWEST_MODERN, "ada", "{}");
        let wanted = "{\"notifications\":{\"toolsListChanged\":true}}";
        let listening = pair.call(&ada, Era::Modern, method::LISTEN, wanted);
        for note in [method::ACKNOWLEDGED, method::TOOLS_CHANGED] {
            let told = listening.message().await;
            assert_eq!(told.method(), note);
            assert_eq!(told.raw(Slot::MetaSubscriptionId), Some(&b"7"[..]), "the client's own id");
        }
        assert!(listening.answer().await.contains("\"id\":7"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_that_is_given_up_has_no_answer_and_one_whose_server_is_changed_ends_in_order()
     {
        for era in [Era::Legacy, Era::Modern] {
            let servers = crate::app::test_bridge::ToolServer::of_both_eras().servers();
            let pair = Pair::new(servers, |server| server.mode = STATEFUL);
            let ada = client(Revision::NEWEST_MODERN, "ada", "{}");
            let [given_up, other] = [(); 2].map(|()| pair.call(&ada, era, method::LISTEN, "{}"));
            pair.servers.until_living(1).await;
            given_up.cancel.cancel();
            assert_eq!(given_up.answer().await, "cancelled");
            pair.back.stop.cancel();
            assert!(other.answer().await.contains("complete"), "{era:?}");
        }
    }
}

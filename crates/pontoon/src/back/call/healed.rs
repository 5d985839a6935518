//! Answers that have the form of the protocol and still mislead a client, put right as they go home: failures of tools told
//! as errors (H25), structured content told as text or other than promised (H18), lists that a server has promised and does not know (H24).

use pontoon_schema::Fault;
use pontoon_wire::heal::{Heal, HealMode, failures, structured};
use pontoon_wire::{Era, Message, Rewrite, Slot};

use super::exchange::Exchange;
use crate::back::outputs::Promise;
use crate::call::list_member;

impl Exchange<'_> {
    /// The answer to a call of a tool as a client can use it.
    pub(super) fn healed(&self, answer: Message) -> Message {
        if answer.has(Slot::Error) {
            return self.without_failure(answer);
        }
        let answer = match &self.promise {
            Some(promise) => self.with_promise_kept(promise, answer),
            None => answer,
        };
        match self.client.era() == Era::Legacy && structured::is_no_object(&answer) {
            true => self.without_odd_structure(answer),
            false => answer,
        }
    }

    /// The result of a tool that promises structured content with what it promised. Where it has nothing that fits, the
    /// tool is shown without its promise from now on, and the answer stays what it is.
    fn with_promise_kept(&self, promise: &Promise, answer: Message) -> Message {
        let given = structured::given(&answer);
        let is_broken = match given {
            Some(given) => promise.is_broken_by(given),
            None => structured::is_missing(&answer),
        };
        if !is_broken || !self.back.heals.found(Heal::H18) {
            return answer;
        }
        let kept = match given {
            None => structured::candidates(&answer).into_iter().find(|text| promise.fits(text)),
            // What it says beside what it gave may be something else.
            Some(given) => promise.fitted(given),
        };
        let kept = kept.and_then(|text| structured::with_structured(&answer, &text));
        kept.unwrap_or_else(|| {
            self.back.outputs.withdraw(promise);
            answer.clone()
        })
    }

    /// Clients with `initialize` know structured content as an object only, and refuse the whole result else.
    fn without_odd_structure(&self, answer: Message) -> Message {
        if self.back.server.heal.schema(Fault::OutputRoot.code()) != HealMode::Repair {
            return answer;
        }
        self.back.heals.note_fault(Fault::OutputRoot);
        structured::as_text(answer)
    }

    /// A failure of the tool is a result that the model can read.
    fn without_failure(&self, answer: Message) -> Message {
        // A server that refuses what a call brings that is made again, its state or its answers, says so as an error.
        let is_again =
            self.request.has(Slot::RequestState) || self.request.has(Slot::InputResponses);
        let tool = self.request.string(Slot::Name).unwrap_or_default();
        let is_failure = !is_again && failures::is_of_tool(&answer, &tool);
        match is_failure && self.back.heals.found(Heal::H25) {
            true => failures::as_result(&answer, self.lease.era),
            false => answer,
        }
    }

    /// A list that the server does not know is empty.
    pub(super) fn listed(&self, answer: Message) -> Message {
        if answer.raw(Slot::ErrorCode) != Some(b"-32601") {
            return answer;
        }
        let Some(member) = list_member(&self.request.method()) else { return answer };
        if !self.back.heals.found(Heal::H24) {
            return answer;
        }
        let kind = match self.lease.era {
            Era::Legacy => "",
            Era::Modern => "\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\",",
        };
        let result = format!("\"result\":{{{kind}\"{member}\":[]}}");
        Rewrite::new(answer).remove(&[Slot::Error]).insert_at_top(&result).into_message()
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::{Revision, method};

    use super::*;
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{Pair, client};

    /// A modern server that refuses every call.
    fn refusing() -> InMemoryServers {
        InMemoryServers::new(|mut end| async move {
            while let Some(line) = end.next_line().await {
                let message = Message::parse(line.as_bytes()).unwrap();
                let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null"));
                let error = "{\"code\":-32602,\"message\":\"this does not belong here\"}";
                end.say(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}")).await;
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_what_a_call_brings_that_is_made_again_stays_an_error() {
        let pair = Pair::new(refusing(), |_| {});
        let ada = client(Revision::NEWEST_MODERN, "ada", "{}");
        let answer = async |more: &str| {
            let params = format!("{{\"name\":\"x\",\"arguments\":{{}}{more}}}");
            pair.call(&ada, Era::Modern, method::CALL_TOOL, &params).answer().await
        };
        let first = answer("").await;
        assert!(first.contains("\"isError\":true"), "the model reads it: {first}");
        for again in
            [",\"requestState\":\"s1\"", ",\"inputResponses\":{\"a\":{\"action\":\"accept\"}}"]
        {
            let refused = answer(again).await;
            assert!(refused.contains("\"error\":{\"code\":-32602"), "{again}: {refused}");
        }
        assert_eq!(pair.back.heals.counts(), [("H25", 1)]);
    }

    /// A server of the handshake whose one tool gives this result.
    fn giving(result: &'static str) -> InMemoryServers {
        InMemoryServers::new(move |mut end| async move {
            while let Some(line) = end.next_line().await {
                let message = Message::parse(line.as_bytes()).unwrap();
                let Some(id) = message.raw(Slot::Id) else { continue };
                let said = match message.method() == method::CALL_TOOL {
                    true => result,
                    false => {
                        r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}"#
                    }
                };
                end.say(&crate::back::pair::result(&String::from_utf8_lossy(id), said)).await;
            }
        })
    }

    /// Of a tool that promises this, which gives this structured content beside this text, a client hears `expected`
    /// as structured content; `None` if the promise is withdrawn.
    async fn check(promised: &str, result: &'static str, expected: Option<&str>) {
        let pair = Pair::new(giving(result), |_| {});
        let tool = format!(r#"{{"name":"x","outputSchema":{promised}}}"#);
        let promises = pair.back.outputs.of([tool.as_str()].into_iter());
        let promise = promises.of("x").cloned();
        let ada = client(Revision::NEWEST_LEGACY, "ada", "{}");
        let params = r#"{"name":"x","arguments":{}}"#;
        let call = pair.call_promised(&ada, Era::Legacy, method::CALL_TOOL, params, promise);
        let answer = call.answer().await;
        let answer = Message::parse(answer.as_bytes()).unwrap();
        let shown = promises.kept(vec![tool.as_str().into()]);
        let is_withdrawn = !shown[0].contains("outputSchema");
        let heard = structured::given(&answer).filter(|_| !is_withdrawn);
        assert_eq!(heard, expected, "{promised} {result}");
        assert_eq!(pair.back.heals.counts().first(), Some(&("H18", 1)), "{result}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_tool_gave_is_replaced_only_by_the_same_in_the_promised_form() {
        let any = r#"{"type":"object"}"#;
        let numbered =
            r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#;
        // What it says beside what it gave may be something else.
        let list =
            r#"{"content":[{"type":"text","text":"{\"debug\":1}"}],"structuredContent":["a"]}"#;
        check(any, list, None).await;
        let other =
            r#"{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"m":2}}"#;
        check(numbered, other, None).await;
        let quoted = r#"{"content":[{"type":"text","text":"{ \"n\": 1 }"}],"structuredContent":"{\"n\":1}"}"#;
        check(numbered, quoted, Some(r#"{"n":1}"#)).await;
        let loose =
            r#"{"content":[{"type":"text","text":"{\"n\":2}"}],"structuredContent":{"n":"1"}}"#;
        check(numbered, loose, Some(r#"{"n":1}"#)).await;
        let missing = r#"{"content":[{"type":"text","text":"{\"n\":1}"}]}"#;
        check(numbered, missing, Some(r#"{"n":1}"#)).await;
    }
}

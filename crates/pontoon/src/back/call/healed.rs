//! Answers that have the form of the protocol and still mislead a client, put right as they go home: failures of tools told
//! as errors (H25), structured content told as text (H18), lists that a server has promised and does not know (H24).

use pontoon_schema::Fault;
use pontoon_wire::heal::{Heal, HealMode, failures, structured};
use pontoon_wire::{Era, Message, Rewrite, Slot};

use super::exchange::Exchange;
use crate::call::list_member;

impl Exchange<'_> {
    /// The answer to a call of a tool as a client can use it.
    pub(super) fn healed(&self, answer: Message) -> Message {
        if answer.has(Slot::Error) {
            return self.without_failure(answer);
        }
        if self.client.era() == Era::Legacy && structured::is_no_object(&answer) {
            return self.without_odd_structure(answer);
        }
        if self.back.outputs.is_empty() || !structured::is_missing(&answer) {
            return answer;
        }
        let tool = self.request.string(Slot::Name).unwrap_or_default();
        if !self.back.outputs.promises(&tool) || !self.back.heals.found(Heal::H18) {
            return answer;
        }
        let fitting = structured::candidates(&answer)
            .into_iter()
            .find(|text| self.back.outputs.fits(&tool, text))
            .and_then(|text| structured::with_structured(&answer, &text));
        fitting.unwrap_or_else(|| {
            self.back.outputs.withdraw(&tool);
            answer
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

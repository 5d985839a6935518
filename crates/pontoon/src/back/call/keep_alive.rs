//! Signs of life for the client of a long call: clients give up a call of which they hear nothing for long, and only
//! answers and progress count as something.
//!
//! An application that works on its main thread says nothing meanwhile, or knows no progress. As long as the connection
//! to it stands the client hears so, if it wants to hear of progress at all.

use std::pin::Pin;
use std::time::Duration;

use pontoon_wire::Slot;
use tokio::time::{Instant, Sleep};

use super::exchange::Exchange;
use crate::back::conversation::link::PendingRequest;
use crate::back::keep::lease::Lease;
use crate::call::Reply;

/// How long a client hears nothing: less than the minute in which some clients want a word.
const PERIOD: Duration = Duration::from_secs(50);

/// When the client of a call hears that it goes on.
pub(crate) struct KeepAlive(Option<Pin<Box<Sleep>>>);

impl KeepAlive {
    /// For a call whose client wants to hear of progress, at an application.
    pub(crate) fn of(exchange: &Exchange<'_>) -> Self {
        let is_wanted = matches!(exchange.lease, Lease::App(_))
            && exchange.request.has(Slot::MetaProgressToken);
        Self(is_wanted.then(|| Box::pin(tokio::time::sleep(PERIOD))))
    }

    /// Waits until nothing was heard for long. Cancel safe: the timer stays.
    pub(crate) async fn due(&mut self) {
        match &mut self.0 {
            Some(timer) => timer.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Begins anew: the client has heard something.
    pub(crate) fn begin_anew(&mut self) {
        if let Some(timer) = &mut self.0 {
            timer.as_mut().reset(Instant::now() + PERIOD);
        }
    }

    /// Lets the client hear that its call goes on.
    pub(crate) fn tell(&mut self, asked: &PendingRequest, reply: &Reply) {
        if let Some(note) = asked.keep_alive() {
            reply.note(note);
        }
        self.begin_anew();
    }
}

impl Exchange<'_> {
    /// Gives a call its whole time again: its application has made progress.
    pub(crate) fn extend(&self, asked: &PendingRequest) {
        if let Lease::App(_) = self.lease {
            self.clock.extend();
            asked.set_deadline(Some(self.clock.deadline()));
        }
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::{Era, Message, method};

    use super::*;
    use crate::back::pair::{MadeCall, result};
    use crate::back::remote::test_app::{AppEnd, TestApp};
    use crate::outbox::Next;

    const TIMEOUT: Duration = Duration::from_secs(150);

    /// An application that tells of progress every hundred seconds, as often as the name of the tool says, and then
    /// answers; a tool called `silent` does neither.
    async fn serve(mut end: AppEnd) {
        while let Some((message, id)) = end.next().await {
            let times: u32 = match (message.method().as_ref(), message.string(Slot::Name)) {
                (method::INITIALIZE, _) => 0,
                (method::CALL_TOOL, Some(name)) if name != "silent" => name.parse().unwrap(),
                _ => continue,
            };
            for progress in 0..times {
                tokio::time::sleep(Duration::from_secs(100)).await;
                end.say(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":\
                     {{\"progressToken\":{id},\"progress\":{progress},\"message\":\"mine\"}}}}"
                ))
                .await;
            }
            end.say(&result(&id, "{\"protocolVersion\":\"2025-11-25\",\"content\":[]}")).await;
        }
    }

    /// What a client of this tool hears of progress, how the call ends, and after how long.
    async fn call(tool: &str, token: &str) -> (Vec<Message>, String, u64) {
        let app = TestApp::new(serve, |server| server.timeout = TIMEOUT);
        let _connection = app.app().connect().await;
        let began = Instant::now();
        let params = format!("{{\"name\":\"{tool}\",\"_meta\":{{{token}}}}}");
        let MadeCall { outbox, .. } =
            app.pair.call(&app.client, Era::Legacy, method::CALL_TOOL, &params);
        let mut notes = Vec::new();
        loop {
            match outbox.next().await {
                Next::Message(text) => {
                    notes.push(Message::parse(text.to_bytes().as_ref()).unwrap());
                }
                Next::End(end) => return (notes, format!("{end:?}"), began.elapsed().as_secs()),
                _ => {}
            }
        }
    }

    fn progress(notes: &[Message]) -> Vec<f64> {
        let number = |note: &Message| {
            let raw = String::from_utf8_lossy(note.raw(Slot::Progress).unwrap()).into_owned();
            raw.parse().unwrap()
        };
        notes.iter().map(number).collect()
    }

    const TOKEN: &str = "\"progressToken\":\"mine\"";

    #[tokio::test(start_paused = true)]
    async fn a_client_hears_of_an_application_that_says_nothing_until_its_time_is_over() {
        let (notes, end, took) = call("silent", TOKEN).await;
        assert_eq!(progress(&notes), [0.0, 1e-9]);
        assert!(notes.iter().all(|note| note.raw(Slot::ProgressToken) == Some(b"\"mine\"")));
        assert!(end.contains("outcome is unknown"), "{end}");
        assert!((TIMEOUT.as_secs()..TIMEOUT.as_secs() + 2).contains(&took), "{took}");
        let (notes, ..) = call("silent", "").await;
        assert!(notes.is_empty(), "it did not ask for any: {notes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_application_tells_stays_in_order_and_gives_the_call_its_time_again() {
        let (notes, end, took) = call("5", TOKEN).await;
        let told = progress(&notes);
        assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
        let own = |note: &&Message| String::from_utf8_lossy(note.text()).contains("\"mine\"}");
        let of_app: Vec<_> = notes.iter().filter(own).cloned().collect();
        assert_eq!(progress(&of_app)[1..], [1.0, 2.0, 3.0, 4.0], "the first was lifted: {told:?}");
        assert!(notes.len() >= 10, "{told:?}");
        assert!(end.contains("content") && took == 500, "{took} s: {end}");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_without_an_end_is_given_up() {
        let (_, end, took) = call("1000", TOKEN).await;
        assert_eq!(took, 10 * TIMEOUT.as_secs());
        assert!(end.contains("it had that time again with each progress, 1500 s in all"), "{end}");
    }
}

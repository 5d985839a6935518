//! A result that is too large for an event: it goes into a file of the call's job, and the answer says where it is.
//!
//! Only on a stream that has begun for the call, and where links are added to answers: by itself an answer of any size can
//! go out, and clients of the older transport, which have nothing but events, always got them of any size.

use pontoon_wire::{Message, Slot, json, quoted};

use super::record::CallRecord;
use crate::back::child::workspace::blocking;
use crate::call::MAX_EVENT;
use crate::jobs::Made;

/// The file that holds the result.
const NAME: &str = "result.json";

impl CallRecord<'_> {
    /// The answer as it fits into an event, and the file that has all of it where it did not. A file that cannot be
    /// written is no reason to lose the result: then the answer stays as it is.
    pub(super) async fn spill(&mut self, answer: Message) -> (Message, Option<Made>) {
        if answer.text().len() <= MAX_EVENT || !is_final(&answer) {
            return (answer, None);
        }
        // A client that was promised structured content refuses a result without it.
        if answer.raw(Slot::StructuredContent).is_some_and(|content| content.len() > MAX_EVENT) {
            return (answer, None);
        }
        let Some(result) = answer.raw(Slot::Result) else { return (answer, None) };
        let result = answer.text().slice_ref(result);
        let written = match self.job_made().await {
            Ok(job) => {
                let put = blocking(move || job.put(NAME, &result)).await;
                put.map_err(|error| self.not_kept(&error))
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(made) => (in_short(&answer, &made), Some(made)),
            Err(error) => {
                tracing::warn!(%error, "a large result is sent whole, as an event that some clients refuse");
                (answer, None)
            }
        }
    }
}

/// Whether an answer is the result of its call, and no step on the way to it.
fn is_final(answer: &Message) -> bool {
    answer.string(Slot::ResultType).is_none_or(|kind| kind == "complete")
}

/// What is said in place of a result that lies in this file. What a program reads stays.
fn in_short(answer: &Message, made: &Made) -> Message {
    let id = String::from_utf8_lossy(answer.raw(Slot::Id).unwrap_or(b"null"));
    let text = format!(
        "The result of this call has {} bytes, too many for the stream on which it is sent. All of it is in the file {}, \
         as JSON: follow the link to read it.",
        made.size, made.path
    );
    let mut members = format!("\"content\":[{{\"type\":\"text\",\"text\":{}}}]", quoted(&text));
    let result = answer.raw(Slot::Result).unwrap_or_default();
    for name in ["resultType", "isError", "structuredContent"] {
        if let Some(value) = json::find(result, name) {
            members += &format!(",\"{name}\":{}", String::from_utf8_lossy(value));
        }
    }
    Message::own(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{members}}}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(members: &str, kept: &str) {
        let text = format!(r#"{{"id":7,"result":{{"content":[]{members}}}}}"#);
        let answer = Message::parse(text.as_bytes()).unwrap();
        let made = Made { path: "result-2.json".to_owned(), size: 1_234_567, mime: "" };
        let short = in_short(&answer, &made);
        let said = String::from_utf8_lossy(short.text()).into_owned();
        let (begin, end) = said.split_once("to read it.\"}]").expect("it says what to do");
        assert!(begin.starts_with(r#"{"jsonrpc":"2.0","id":7,"result":{"content":["#), "{said}");
        assert!(begin.contains("1234567 bytes") && begin.contains("file result-2.json"), "{said}");
        assert_eq!(end, format!("{kept}}}}}"));
    }

    #[test]
    fn what_programs_read_stays_in_the_answer() {
        check("", "");
        check(r#","isError":true,"x":1"#, r#","isError":true"#);
        let all = r#","resultType":"complete","isError":false,"structuredContent":{"n":1.0}"#;
        check(all, all);
    }

    #[test]
    fn a_question_or_a_task_is_no_result_yet() {
        let is_final = |kind: &str| {
            let text = format!(r#"{{"id":1,"result":{{{kind}}}}}"#);
            is_final(&Message::parse(text.as_bytes()).unwrap())
        };
        assert!(is_final("") && is_final(r#""resultType":"complete""#));
        assert!(!is_final(r#""resultType":"input_required""#));
        assert!(!is_final(r#""resultType":"task""#));
    }
}

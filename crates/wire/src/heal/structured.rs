//! Results of tools that promise structured content and give it as text, or other than promised (H18). Whether it fits the schema is for the
//! caller to say.

use crate::json::{elements, find};
use crate::message::{Message, quoted, string_value};
use crate::rewrite::Rewrite;
use crate::slot::Slot;

/// Whether the answer is the result of a tool that did its work, without structured content.
pub fn is_missing(answer: &Message) -> bool {
    let is_result = answer.raw(Slot::ResultContent).is_some_and(|raw| raw.first() == Some(&b'['));
    let goes_on = answer.string(Slot::ResultType).is_some_and(|kind| kind != "complete");
    is_result
        && !goes_on
        && answer.raw(Slot::StructuredContent).is_none_or(|raw| raw == b"null")
        && answer.raw(Slot::IsError) != Some(b"true")
}

/// The structured content of the result of a tool that did its work.
pub fn given(answer: &Message) -> Option<&str> {
    let raw = answer.raw(Slot::StructuredContent).filter(|raw| *raw != b"null")?;
    let goes_on = answer.string(Slot::ResultType).is_some_and(|kind| kind != "complete");
    let has_failed = answer.raw(Slot::IsError) == Some(b"true");
    let text = std::str::from_utf8(raw).expect("a message is UTF-8");
    Some(text).filter(|_| !goes_on && !has_failed)
}

/// Whether the structured content is something else than an object, such as a list.
pub fn is_no_object(answer: &Message) -> bool {
    let structured = answer.raw(Slot::StructuredContent).filter(|raw| *raw != b"null");
    structured.is_some_and(|raw| raw.first() != Some(&b'{'))
}

/// The answer without its structured content, which is a text of it if there is nothing else.
pub fn as_text(answer: Message) -> Message {
    let structured = answer.raw(Slot::StructuredContent).unwrap_or_default();
    let text = quoted(&String::from_utf8_lossy(structured));
    let has_content = answer.has(Slot::ResultContent);
    let rewrite = Rewrite::new(answer).remove(&[Slot::StructuredContent]);
    match has_content {
        true => rewrite.into_message(),
        false => {
            let content = format!("\"content\":[{{\"type\":\"text\",\"text\":{text}}}]");
            let answer = rewrite.into_message();
            Rewrite::new(answer).insert_into(Slot::Result, &content).into_message()
        }
    }
}

/// The texts of the result that are JSON objects.
pub fn candidates(answer: &Message) -> Vec<String> {
    let Some(content) = answer.raw(Slot::ResultContent) else { return Vec::new() };
    let blocks = elements(content, 0..content.len()).map(|block| &content[block]);
    let texts = blocks.filter_map(|block| find(block, "text").and_then(string_value));
    let objects = texts.map(|text| text.trim().to_owned()).filter(|text| text.starts_with('{'));
    objects.collect()
}

/// The answer with this JSON text as its structured content; `None` if it is no JSON that an answer may hold.
pub fn with_structured(answer: &Message, object: &str) -> Option<Message> {
    let rewrite = Rewrite::new(answer.clone());
    let rewrite = match answer.has(Slot::StructuredContent) {
        true => rewrite.replace(Slot::StructuredContent, object.to_owned()),
        false => rewrite.insert_into(Slot::Result, &format!("\"structuredContent\":{object}")),
    };
    rewrite.try_into_message().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(result: &str) -> Message {
        Message::own(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#))
    }

    #[test]
    fn only_a_whole_result_can_lack_structured_content() {
        for (result, expected) in [
            (r#"{"content":[]}"#, true),
            (r#"{"content":[],"structuredContent":null}"#, true),
            (r#"{"content":[],"resultType":"complete","isError":false}"#, true),
            (r#"{"content":[],"structuredContent":{}}"#, false),
            (r#"{"content":[],"isError":true}"#, false),
            (r#"{"content":[],"resultType":"input_required"}"#, false),
            (r#"{"task":{}}"#, false),
        ] {
            assert_eq!(is_missing(&answer(result)), expected, "{result}");
        }
    }

    #[test]
    fn what_a_tool_gives_counts_if_it_did_its_work() {
        for (result, expected) in [
            (r#"{"structuredContent":{"n":1.50}}"#, Some(r#"{"n":1.50}"#)),
            (r#"{"structuredContent":[1],"isError":false,"resultType":"complete"}"#, Some("[1]")),
            (r#"{"structuredContent":null}"#, None),
            (r#"{"structuredContent":{},"isError":true}"#, None),
            (r#"{"structuredContent":{},"resultType":"input_required"}"#, None),
            ("{}", None),
        ] {
            assert_eq!(given(&answer(result)), expected, "{result}");
        }
    }

    #[test]
    fn a_list_as_structured_content_is_left_to_the_text() {
        for (result, expected) in [
            (r#"{"content":[1],"structuredContent":["a"]}"#, r#"{"content":[1]}"#),
            (r#"{"structuredContent":"a"}"#, r#"{"content":[{"type":"text","text":"\"a\""}]}"#),
        ] {
            assert!(is_no_object(&answer(result)), "{result}");
            let text = as_text(answer(result));
            assert_eq!(text.raw(Slot::Result), Some(expected.as_bytes()));
        }
        for result in [r#"{"structuredContent":{}}"#, r#"{"structuredContent":null}"#, "{}"] {
            assert!(!is_no_object(&answer(result)), "{result}");
        }
    }

    #[test]
    fn a_text_that_is_an_object_becomes_structured_content() {
        let said = r#"{"content":[{"type":"text","text":"made"},{"type":"text","text":" {\"n\": 1.50}\n"},{"type":"image"}]}"#;
        let answer = answer(said);
        let found = candidates(&answer);
        assert_eq!(found, ["{\"n\": 1.50}"]);
        let made = with_structured(&answer, &found[0]).unwrap();
        assert_eq!(made.raw(Slot::StructuredContent), Some(b"{\"n\": 1.50}".as_slice()));
        assert_eq!(with_structured(&answer, "{\"n\":").map(|_| ()), None);
    }
}

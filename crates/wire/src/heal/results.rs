//! Results of tools that are not in the form of one, put right (H17).
//!
//! Clients show the blocks of `content` and nothing else: a bare result looks to them like none.

use super::{Heal, Heals};
use crate::json::{elements, entries, find};
use crate::message::{Message, quoted, string_value};
use crate::rewrite::Rewrite;
use crate::slot::Slot;

/// The answer to a call of a tool as it should have been.
pub(crate) fn mend(answer: Message, heals: &mut Heals) -> Message {
    if !is_bare(&answer) || !heals.found(Heal::H17) {
        return answer;
    }
    // A list around what is nested to the limit is one level too many.
    with_content(&answer).try_into_message().unwrap_or(answer)
}

/// Whether what is there has no list of blocks, and is no question or task either.
fn is_bare(answer: &Message) -> bool {
    let Some(result) = answer.raw(Slot::Result) else { return false };
    if result.first() != Some(&b'{') {
        return true;
    }
    match answer.raw(Slot::ResultContent) {
        Some(content) => {
            let mut items = elements(content, 0..content.len()).map(|item| &content[item]);
            content.first() != Some(&b'[') || items.any(|item| !is_block(item))
        }
        None => {
            let kind = answer.string(Slot::ResultType);
            let goes_on = kind.is_some_and(|kind| kind != "complete")
                || answer.has(Slot::InputRequests)
                || answer.has(Slot::ResultState);
            !goes_on && find(result, "task").is_none_or(|task| task.first() != Some(&b'{'))
        }
    }
}

/// The answer with a list of blocks.
fn with_content(answer: &Message) -> Rewrite {
    let result = answer.raw(Slot::Result).unwrap_or(b"null");
    let rewrite = Rewrite::new(answer.clone());
    if result.first() != Some(&b'{') {
        let content = format!("{{\"content\":[{}]}}", block(result));
        return rewrite.replace(Slot::Result, content);
    }
    if let Some(content) = answer.raw(Slot::ResultContent) {
        let blocks: Vec<_> = match content.first() {
            Some(b'[') => {
                let blocks = elements(content, 0..content.len()).map(|item| block(&content[item]));
                blocks.filter(|block| !block.is_empty()).collect()
            }
            _ => vec![block(content)],
        };
        let content = format!("[{}]", blocks.join(","));
        return rewrite.replace(Slot::ResultContent, content);
    }
    if let Some(structured) = answer.raw(Slot::StructuredContent) {
        let content = format!("\"content\":[{}]", text_block(structured));
        return rewrite.insert_into(Slot::Result, &content);
    }
    // All of it is what the tool said, but for what the protocol knows.
    let known = [Slot::ResultType, Slot::IsError, Slot::ResultMeta];
    let known = known.into_iter().filter_map(|slot| {
        let value = String::from_utf8_lossy(answer.raw(slot)?);
        Some(format!(",\"{}\":{value}", slot.name()))
    });
    let is_empty = elements_of_object(result) == 0;
    let said = if is_empty { String::new() } else { text_block(result) };
    let result = format!("{{\"content\":[{said}]{}}}", known.collect::<String>());
    rewrite.replace(Slot::Result, result)
}

/// A block of this value: the value itself if it is one.
fn block(value: &[u8]) -> String {
    let as_it_is = || String::from_utf8_lossy(value).into_owned();
    match value.first() {
        Some(b'"') => format!("{{\"type\":\"text\",\"text\":{}}}", as_it_is()),
        Some(b'n') => String::new(),
        Some(b'{') if is_block(value) => as_it_is(),
        _ => match meant_type(value) {
            Some(kind) => with_type(value, kind),
            None => text_block(value),
        },
    }
}

fn is_block(value: &[u8]) -> bool {
    value.first() == Some(&b'{') && find(value, "type").is_some_and(is_text)
}

/// The one type of which a block without a type may be.
fn meant_type(block: &[u8]) -> Option<&'static str> {
    let has_text = |name| find(block, name).is_some_and(is_text);
    let kind = |prefix: &str| {
        let kind = find(block, "mimeType").and_then(string_value);
        has_text("data") && kind.is_some_and(|kind| kind.starts_with(prefix))
    };
    let meant = [
        ("text", has_text("text")),
        ("image", kind("image/")),
        ("audio", kind("audio/")),
        ("resource", find(block, "resource").is_some_and(|it| it.first() == Some(&b'{'))),
        ("resource_link", has_text("uri") && has_text("name")),
    ];
    let mut meant = meant.into_iter().filter(|(_, is_meant)| *is_meant);
    let (kind, _) = meant.next()?;
    meant.next().is_none().then_some(kind)
}

/// The block with this type, in the place of one that is no text.
fn with_type(block: &[u8], kind: &str) -> String {
    let is_type = |key: &[u8]| string_value(key).is_some_and(|key| key == "type");
    let others = entries(block, 0..block.len()).filter(|entry| !is_type(&block[entry.key.clone()]));
    let others =
        others.map(|entry| String::from_utf8_lossy(&block[entry.key.start..entry.value.end]));
    others.fold(format!("{{\"type\":\"{kind}\""), |made, other| made + "," + &other) + "}"
}

fn text_block(json: &[u8]) -> String {
    let text = quoted(&String::from_utf8_lossy(json));
    format!("{{\"type\":\"text\",\"text\":{text}}}")
}

fn is_text(value: &[u8]) -> bool {
    value.first() == Some(&b'"')
}

fn elements_of_object(object: &[u8]) -> usize {
    entries(object, 0..object.len()).take(1).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heal::HealMode;

    #[track_caller]
    fn check(result: &str, expected: &str) {
        let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let mut heals = Heals::default();
        let message = Message::parse(answer(result).as_bytes()).unwrap();
        let mended = mend(message, &mut heals);
        assert_eq!(std::str::from_utf8(mended.text()).unwrap(), answer(expected));
        assert_eq!(heals.count(Heal::H17), u64::from(result != expected));
    }

    const HELLO: &str = r#"{"content":[{"type":"text","text":"hello"}]}"#;

    #[test]
    fn a_proper_result_is_untouched() {
        for proper in [
            HELLO,
            r#"{"content":[]}"#,
            r#"{"isError":true,"content":[ {"type":"image"}],"x":1.0}"#,
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            r#"{"resultType":"task","taskId":"1"}"#,
            r#"{"task":{"taskId":"1"}}"#,
        ] {
            check(proper, proper);
        }
    }

    #[test]
    fn a_bare_result_becomes_a_text() {
        check("\"hello\"", HELLO);
        check("null", r#"{"content":[]}"#);
        check("{}", r#"{"content":[]}"#);
        check("[1.0, 2]", r#"{"content":[{"type":"text","text":"[1.0, 2]"}]}"#);
        check(
            r#"{"count":0,"patches":[]}"#,
            r#"{"content":[{"type":"text","text":"{\"count\":0,\"patches\":[]}"}]}"#,
        );
        check(
            r#"{"isError":true,"why":"no","_meta":{"a":1},"resultType":"complete"}"#,
            r#"{"content":[{"type":"text","text":"{\"isError\":true,\"why\":\"no\",\"_meta\":{\"a\":1},\"resultType\":\"complete\"}"}],"resultType":"complete","isError":true,"_meta":{"a":1}}"#,
        );
        check(
            r#"{"structuredContent":{"n":1.50}}"#,
            r#"{"content":[{"type":"text","text":"{\"n\":1.50}"}],"structuredContent":{"n":1.50}}"#,
        );
    }

    #[test]
    fn content_becomes_a_list_of_blocks() {
        check(r#"{"content":"hello"}"#, HELLO);
        check(r#"{"content":{"text":"hello"}}"#, HELLO);
        check(r#"{"content":{"type":"text","text":"hello"}}"#, HELLO);
        check(r#"{"content":null}"#, r#"{"content":[]}"#);
        check(r#"{"content":[{"text":"hello"}]}"#, HELLO);
        check(r#"{"content":[{"type":null,"text":"hello"}]}"#, HELLO);
        check(
            r#"{"content":[{"type":"text","text":"a"}, {"text":"b","_meta":{}}]}"#,
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b","_meta":{}}]}"#,
        );
        check(
            r#"{"content":[{"data":"eA==","mimeType":"image/png"},{"data":"eA==","mimeType":"audio/wav"},{"resource":{"uri":"a:b","text":"x"}},{"uri":"a:b","name":"n"}]}"#,
            r#"{"content":[{"type":"image","data":"eA==","mimeType":"image/png"},{"type":"audio","data":"eA==","mimeType":"audio/wav"},{"type":"resource","resource":{"uri":"a:b","text":"x"}},{"type":"resource_link","uri":"a:b","name":"n"}]}"#,
        );
        // What may mean several things, or nothing, is told as it stands.
        check(
            r#"{"content":[{"n":1.50},{"data":"eA==","mimeType":"video/mp4"},{"text":"x","uri":"a:b","name":"n"}]}"#,
            r#"{"content":[{"type":"text","text":"{\"n\":1.50}"},{"type":"text","text":"{\"data\":\"eA==\",\"mimeType\":\"video/mp4\"}"},{"type":"text","text":"{\"text\":\"x\",\"uri\":\"a:b\",\"name\":\"n\"}"}]}"#,
        );
        check(
            r#"{"content":[ "hello", null, {"type":"image"}]}"#,
            r#"{"content":[{"type":"text","text":"hello"},{"type":"image"}]}"#,
        );
        check(r#"{"content":7}"#, r#"{"content":[{"type":"text","text":"7"}]}"#);
    }

    #[test]
    fn what_is_nested_to_the_limit_stays_as_it_is() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for levels in 110..=125 {
            let result = format!(r#"{{"content":{{"type":"x","d":{}}}}}"#, deep(levels));
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let message = Message::parse(text.as_bytes()).unwrap();
            let mended = mend(message.clone(), &mut Heals::default());
            assert_eq!(mended.text() == message.text(), levels == 125, "{levels}");
        }
    }

    #[test]
    fn without_repair_it_is_counted_or_not_even_that() {
        for (mode, count) in [(HealMode::Warn, 1), (HealMode::Off, 0)] {
            let mut heals = Heals::new(mode);
            let message = Message::parse(&br#"{"id":1,"result":"x"}"#[..]).unwrap();
            let same = mend(message.clone(), &mut heals);
            assert_eq!((same.text(), heals.count(Heal::H17)), (message.text(), count));
        }
    }
}

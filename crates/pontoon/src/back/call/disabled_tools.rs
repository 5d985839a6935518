//! Tools that are switched off, taken out of the lists that children give themselves.
//!
//! The catalogue leaves them out of what it tells; their calls are refused before any child.

use std::ops::Range;

use pontoon_wire::{Message, Rewrite, Slot, json, string_value};

/// The answer to `tools/list` without these tools.
pub(crate) fn without(answer: Message, disabled: &[String]) -> Message {
    let Some(result) = answer.raw(Slot::Result) else { return answer };
    let Some(tools) = json::find(result, "tools").filter(|raw| raw.first() == Some(&b'[')) else {
        return answer;
    };
    let is_hidden = |tool: &Range<usize>| {
        let name = json::find(&tools[tool.clone()], "name").and_then(string_value);
        name.is_some_and(|name| disabled.iter().any(|hidden| *hidden == name))
    };
    let all: Vec<_> = json::elements(tools, 0..tools.len()).collect();
    if !all.iter().any(is_hidden) {
        return answer;
    }
    let shown = all.into_iter().filter(|tool| !is_hidden(tool)).map(|tool| &tools[tool]);
    let start = tools.as_ptr() as usize - result.as_ptr() as usize;
    let parts = [&result[..start], b"[", &shown.collect::<Vec<_>>().join(&b','), b"]"];
    let mut changed = parts.concat();
    changed.extend_from_slice(&result[start + tools.len()..]);
    Rewrite::new(answer).replace(Slot::Result, changed).into_message()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: &str) {
        let answer = Message::parse(answer.as_bytes()).unwrap();
        let changed = without(answer, &["b".to_owned(), "c".to_owned()]);
        assert_eq!(std::str::from_utf8(changed.text()).unwrap(), expected);
    }

    #[test]
    fn what_is_disabled_is_left_out_and_the_rest_stays() {
        check(
            r#"{"id":1,"result":{"x":1.0,"tools":[{"name":"a"}, {"t":"b","name":"\u0062"},{"name":"d"}],"nextCursor":"b"}}"#,
            r#"{"id":1,"result":{"x":1.0,"tools":[{"name":"a"},{"name":"d"}],"nextCursor":"b"}}"#,
        );
        check(r#"{"id":1,"result":{"tools":[{"name":"c"}]}}"#, r#"{"id":1,"result":{"tools":[]}}"#);
    }

    #[test]
    fn what_needs_no_change_gets_none() {
        for same in [
            r#"{"id":1,"result":{"tools":[{"name":"a"} , {"description":"b"}]}}"#,
            r#"{"id":1,"result":{"tools":"b"}}"#,
            r#"{"id":1,"error":{"code":1,"message":"b"}}"#,
        ] {
            check(same, same);
        }
    }
}

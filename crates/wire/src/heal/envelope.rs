//! Members that the envelope of a message does not have, moved to where a client expects more (H30).

use crate::json::{Entry, entries, find};
use crate::message::{Message, string_value};
use crate::rewrite::Rewrite;
use crate::scan::Member;
use crate::slot::Slot;

const KNOWN: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The message with the members that are not its own in `_meta` of its result or parameters; where there is neither,
/// and where `_meta` has such a member already, they are taken out.
pub(crate) fn tidy(message: &Message) -> Message {
    let text = message.text();
    let is_known = |entry: &Entry| {
        string_value(&text[entry.key.clone()]).is_some_and(|key| KNOWN.contains(&key.as_ref()))
    };
    let others: Vec<_> = entries(text, 0..text.len()).filter(|it| !is_known(it)).collect();
    let member = |entry: &Entry| Member {
        key: entry.key.start as u32,
        start: entry.value.start as u32,
        end: entry.value.end as u32,
    };
    let removed = Rewrite::new(message.clone()).remove_all(others.iter().map(member).collect());
    let is_object = |slot| message.raw(slot).is_some_and(|raw| raw.first() == Some(&b'{'));
    let (outer, meta) = match message.has(Slot::Method) {
        true => (Slot::Params, Slot::Meta),
        false => (Slot::Result, Slot::ResultMeta),
    };
    let is_new = |entry: &&Entry| {
        let name = string_value(&text[entry.key.clone()]).unwrap_or_default();
        message.raw(meta).is_none_or(|meta| find(meta, &name).is_none())
    };
    let moved = others.iter().filter(is_new);
    let moved = moved.map(|it| String::from_utf8_lossy(&text[it.key.start..it.value.end]));
    let moved = moved.collect::<Vec<_>>().join(",");
    let tidied = match (is_object(meta), message.has(meta), is_object(outer)) {
        (true, ..) => removed.clone().insert_into(meta, &moved),
        (false, false, true) if !moved.is_empty() => {
            removed.clone().insert_into(outer, &format!("\"_meta\":{{{moved}}}"))
        }
        _ => removed.clone(),
    };
    // What is nested to the limit cannot be moved two levels down.
    tidied.try_into_message().unwrap_or_else(|_| removed.into_message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let message = Message::parse(text.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(tidy(&message).text()).unwrap(), expected);
    }

    #[test]
    fn members_of_an_answer_go_to_the_meta_of_its_result() {
        check(
            r#"{"instruction":"obey","jsonrpc":"2.0","id":1,"result":{"a":1.0},"b":[2]}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"instruction":"obey","b":[2]},"a":1.0}}"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"x":1}},"x":2,"y":3}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"y":3,"x":1}}}"#,
        );
    }

    #[test]
    fn members_of_a_note_go_to_the_meta_of_its_parameters() {
        check(
            r#"{"jsonrpc":"2.0","method":"m","params":{},"x":1}"#,
            r#"{"jsonrpc":"2.0","method":"m","params":{"_meta":{"x":1}}}"#,
        );
        check(r#"{"jsonrpc":"2.0","method":"m","x":1}"#, r#"{"jsonrpc":"2.0","method":"m"}"#);
    }

    #[test]
    fn where_there_is_no_place_for_them_they_go() {
        check(
            r#"{"jsonrpc":"2.0","x":1,"id":1,"error":{"code":1,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":"bare","x":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":"bare"}"#,
        );
        let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{}},"x":{deep}}}"#),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        );
    }
}

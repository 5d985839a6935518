//! Answers of the wrong form, put right (H13, H14, H16). What cannot be read is left alone.

use super::{Heal, Heals};
use crate::error::{ErrorObject, code};
use crate::json::{Entry, elements, entries};
use crate::message::{Message, string_value};
use crate::rewrite::Rewrite;
use crate::scan::{Member, Word};
use crate::slot::Slot;

/// Members that may be absent but, by the schema, not null.
const OPTIONAL: [&str; 19] = [
    "_meta",
    "annotations",
    "audience",
    "blob",
    "cursor",
    "description",
    "execution",
    "icons",
    "instructions",
    "isError",
    "lastModified",
    "mimeType",
    "nextCursor",
    "outputSchema",
    "priority",
    "size",
    "structuredContent",
    "text",
    "title",
];

/// Lists whose items are looked into for such members.
const LISTS: [&str; 7] =
    ["content", "contents", "messages", "prompts", "resources", "resourceTemplates", "tools"];

/// The answer as it should have been.
pub fn mend(message: Message, heals: &mut Heals) -> Message {
    let mut message = message;
    for (is_broken, repair, heal) in [
        (lacks_version(&message), add_version as fn(&Message) -> Message, Heal::H13),
        (has_odd_outcome(&message), mend_outcome, Heal::H14),
        (has_nulls(&message), drop_nulls, Heal::H16),
    ] {
        if is_broken && heals.found(heal) {
            message = repair(&message);
        }
    }
    message
}

fn lacks_version(message: &Message) -> bool {
    message.raw(Slot::Jsonrpc) != Some(b"\"2.0\"")
}

fn add_version(message: &Message) -> Message {
    let rewrite = Rewrite::new(message.clone());
    match message.has(Slot::Jsonrpc) {
        true => rewrite.replace(Slot::Jsonrpc, "\"2.0\""),
        false => rewrite.insert_at_top("\"jsonrpc\":\"2.0\""),
    }
    .into_message()
}

/// Whether an answer's outcome is not exactly one result object or one proper error.
fn has_odd_outcome(message: &Message) -> bool {
    if message.has(Slot::Method) {
        return false;
    }
    match (message.raw(Slot::Result), message.raw(Slot::Error)) {
        (Some(_), None) => false,
        (None, Some(_)) => !is_proper_error(message),
        (Some(_), Some(_)) | (None, None) => message.has(Slot::Id),
    }
}

fn is_proper_error(message: &Message) -> bool {
    let is_integer = |raw: &[u8]| raw.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9'));
    message.raw(Slot::ErrorCode).is_some_and(is_integer)
        && message.raw(Slot::ErrorMessage).is_some_and(|raw| raw.first() == Some(&b'"'))
}

/// A non-null error wins over a result; an error of any form becomes a proper one.
fn mend_outcome(message: &Message) -> Message {
    let result = message.raw(Slot::Result);
    let error = message.raw(Slot::Error).filter(|error| *error != b"null");
    // Beside a result only what says something is an error: some servers write `"error": false`.
    let says = |error: &&[u8]| {
        let is_text = error.first() == Some(&b'"') && *error != b"\"\"";
        is_text || error.first() == Some(&b'{') && entries(error, 0..error.len()).next().is_some()
    };
    let error = error.filter(|error| result.is_none() || says(error));
    let rewrite = Rewrite::new(message.clone());
    match (result, error) {
        (Some(_), None) => rewrite.remove(&[Slot::Error]),
        (_, Some(_)) if is_proper_error(message) => rewrite.remove(&[Slot::Result]),
        (_, Some(error)) => {
            let error = proper_error(message, error).to_json();
            rewrite.remove(&[Slot::Result]).replace(Slot::Error, error)
        }
        (None, None) => {
            let error = ErrorObject::new(code::INTERNAL, "the server answered without a result");
            let error = format!("\"error\":{}", error.to_json());
            rewrite.remove(&[Slot::Error]).insert_at_top(&error)
        }
    }
    .into_message()
}

fn proper_error(message: &Message, raw: &[u8]) -> ErrorObject {
    const DEFAULT: i64 = -32000;
    let number = |slot| {
        let raw = std::str::from_utf8(message.raw(slot)?).ok()?;
        raw.trim_matches('"').parse::<f64>().ok().map(|number| number as i64)
    };
    let text = message
        .string(Slot::ErrorMessage)
        .or_else(|| string_value(raw))
        .map_or_else(|| String::from_utf8_lossy(raw).into_owned(), |text| text.into_owned());
    let data = message.raw(Slot::ErrorData).map(|data| String::from_utf8_lossy(data).into_owned());
    ErrorObject { code: number(Slot::ErrorCode).unwrap_or(DEFAULT), message: text, data }
}

fn has_nulls(message: &Message) -> bool {
    // Most results have no null at all.
    message.says(Word::Null) && !nulls(message).is_empty()
}

fn drop_nulls(message: &Message) -> Message {
    Rewrite::new(message.clone()).remove_all(nulls(message)).into_message()
}

/// The null members at places where the schema has an optional one: in the result itself and in the
/// items of its lists, never inside data of the user.
fn nulls(message: &Message) -> Vec<Member> {
    let text = message.text();
    let Some(result) = message.member(Slot::Result) else { return Vec::new() };
    let result = result.start as usize..result.end as usize;
    let name =
        |key: std::ops::Range<usize>| string_value(&text[key]).unwrap_or_default().into_owned();
    let mut found = Vec::new();
    let mut collect = |object: std::ops::Range<usize>| {
        for entry in entries(text, object) {
            if &text[entry.value.clone()] == b"null"
                && OPTIONAL.contains(&name(entry.key.clone()).as_str())
            {
                found.push(member_of(&entry));
            }
        }
    };
    collect(result.clone());
    let (mut capabilities, mut is_greeting) = (None, false);
    for entry in entries(text, result) {
        let name = name(entry.key);
        is_greeting |= matches!(name.as_str(), "protocolVersion" | "supportedVersions");
        if LISTS.contains(&name.as_str()) {
            elements(text, entry.value).for_each(&mut collect);
        } else if name == "capabilities" {
            capabilities = Some(entry.value);
        }
    }
    // Every capability, and every promise of one, may be absent.
    let capabilities = capabilities.filter(|_| is_greeting);
    for capability in capabilities.into_iter().flat_map(|all| entries(text, all)) {
        let inside = entries(text, capability.value.clone());
        for entry in std::iter::once(capability).chain(inside) {
            if &text[entry.value.clone()] == b"null" {
                found.push(member_of(&entry));
            }
        }
    }
    found
}

fn member_of(entry: &Entry) -> Member {
    Member {
        key: entry.key.start as u32,
        start: entry.value.start as u32,
        end: entry.value.end as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_a_result_only_what_says_something_is_an_error() {
        let mended = |error: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{}},"error":{error}}}"#);
            mend_outcome(&Message::parse(text.as_bytes()).unwrap()).has(Slot::Error)
        };
        for nothing in ["false", "0", "{}", "[]", "\"\"", "null"] {
            assert!(!mended(nothing), "{nothing}");
        }
        for error in ["\"it broke\"", r#"{"message":"it broke"}"#] {
            assert!(mended(error), "{error}");
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str, expected_heals: &[(Heal, u64)]) {
        let mut heals = Heals::default();
        let message = Message::parse(text.as_bytes()).unwrap();
        let mended = mend(message, &mut heals);
        assert_eq!(std::str::from_utf8(mended.text()).unwrap(), expected);
        assert_eq!(heals.take(), expected_heals);
    }

    #[test]
    fn a_proper_answer_is_untouched() {
        let text = r#"{"result":{"content":[]},"jsonrpc":"2.0","id":2}"#;
        check(text, text, &[]);
        let text = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no","data":null}}"#;
        check(text, text, &[]);
    }

    #[test]
    fn the_version_is_added() {
        check(
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            &[(Heal::H13, 1)],
        );
        check(
            r#"{"jsonrpc":2,"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            &[(Heal::H13, 1)],
        );
    }

    #[test]
    fn an_outcome_is_one_result_or_one_error() {
        let heal = &[(Heal::H14, 1)];
        let answer = |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":1{rest}}}"#);
        check(&answer(r#","result":{},"error":null"#), &answer(r#","result":{}"#), heal);
        check(
            &answer(r#","result":null,"error":{"code":1,"message":"m"}"#),
            &answer(r#","error":{"code":1,"message":"m"}"#),
            heal,
        );
        check(
            &answer(r#","error":"bad""#),
            &answer(r#","error":{"code":-32000,"message":"bad"}"#),
            heal,
        );
        check(
            &answer(r#","error":{"code":"5","message":"m","data":[1]}"#),
            &answer(r#","error":{"code":5,"message":"m","data":[1]}"#),
            heal,
        );
    }

    #[test]
    fn nulls_go_only_where_the_schema_is_known() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","title":null,"inputSchema":{"default":null}}],"nextCursor":null,"own":null}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"default":null}}],"own":null}}"#,
            &[(Heal::H16, 1)],
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":null},"prompts":null,"x":{"y":{"z":null}}}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"x":{"y":{"z":null}}}}}"#,
            &[(Heal::H16, 1)],
        );
        for data in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"title":null}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"capabilities":{"prompts":null}}}"#,
        ] {
            check(data, data, &[]);
        }
    }
}

//! Messages of the wrong form, put right (H13, H14, H16). What cannot be read is left alone.

use super::nulls::{self, ObjectForm};
use super::{Heal, Heals};
use crate::error::{ErrorObject, code};
use crate::json::entries;
use crate::message::{Message, string_value};
use crate::rewrite::Rewrite;
use crate::scan::Member;
use crate::slot::Slot;

/// The answer with one outcome.
pub(crate) fn mend_answer(answer: Message, heals: &mut Heals) -> Message {
    match has_odd_outcome(&answer) && heals.found(Heal::H14) {
        true => mend_outcome(&answer),
        false => answer,
    }
}

/// The result of a request without what should be absent.
pub(crate) fn mend_result(answer: Message, form: &ObjectForm, heals: &mut Heals) -> Message {
    let nulls = nulls::in_result(&answer, form);
    without(answer, nulls, heals)
}

/// What a server says by itself without what should be absent.
pub(crate) fn mend_params(message: Message, heals: &mut Heals) -> Message {
    let nulls = nulls::in_params(&message);
    without(message, nulls, heals)
}

fn without(message: Message, nulls: Vec<Member>, heals: &mut Heals) -> Message {
    match !nulls.is_empty() && heals.found(Heal::H16) {
        true => nulls::without(&message, nulls),
        false => message,
    }
}

/// The message with its version.
pub(crate) fn mend_version(message: Message, heals: &mut Heals) -> Message {
    match lacks_version(&message) && heals.found(Heal::H13) {
        true => add_version(&message),
        false => message,
    }
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
        let mended = mend_answer(mend_version(message, &mut heals), &mut heals);
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
}

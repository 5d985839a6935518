//! Failures of tools that came as errors of the protocol, made results that a model can read (H25).
//!
//! The protocol keeps errors for unknown tools and for requests that cannot be read, and wants everything that goes
//! wrong inside a tool, wrong arguments included, in its result.

use crate::error::code;
use crate::message::{Message, quoted};
use crate::revision::Era;
use crate::rewrite::Rewrite;
use crate::slot::Slot;

/// The client has to visit an address first: an error that clients act on.
const URL_ELICITATION: i64 = -32042;

/// The request was cancelled, as the Language Server Protocol has it.
const CANCELLED: i64 = -32800;

/// Whether the error that answers the call of this tool is a failure of the tool itself.
pub fn is_of_tool(answer: &Message, tool: &str) -> bool {
    if !answer.has(Slot::Error) {
        return false;
    }
    let raw = answer.raw(Slot::ErrorCode).and_then(|raw| std::str::from_utf8(raw).ok());
    let Some(code) = raw.and_then(|raw| raw.parse().ok()) else { return false };
    match code {
        code::PARSE
        | code::INVALID_REQUEST
        | code::METHOD_NOT_FOUND
        | code::HEADER_MISMATCH
        | code::MISSING_CAPABILITY
        | code::UNSUPPORTED_VERSION
        | URL_ELICITATION
        | CANCELLED => false,
        // Another bridge says that it could not make the call.
        code::DISK_FULL..=code::UNAUTHORIZED => false,
        _ => !says_unknown(&answer.string(Slot::ErrorMessage).unwrap_or_default(), tool),
    }
}

/// Whether an error says that there is no such tool.
fn says_unknown(said: &str, tool: &str) -> bool {
    let said = said.to_lowercase();
    let is_named = !tool.is_empty() && said.contains(&tool.to_lowercase());
    let is_missing = ["not found", "not exist", "unknown", "no such", "no tool"]
        .iter()
        .any(|it| said.contains(it));
    ["unknown tool", "no such tool", "tool not found"].iter().any(|it| said.contains(it))
        || (is_named && is_missing && said.contains("tool"))
}

/// The result that says what the error said, as a server of this era writes it. The error itself is in its `_meta`.
pub fn as_result(answer: &Message, era: Era) -> Message {
    let error = String::from_utf8_lossy(answer.raw(Slot::Error).unwrap_or(b"null"));
    let mut said = answer.string(Slot::ErrorMessage).unwrap_or_default().into_owned();
    if let Some(data) = answer.raw(Slot::ErrorData).filter(|data| *data != b"null") {
        said += &format!("\n{}", String::from_utf8_lossy(data));
    }
    let kind = match era {
        Era::Legacy => "",
        Era::Modern => "\"resultType\":\"complete\",",
    };
    let result = format!(
        "\"result\":{{{kind}\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"isError\":true",
        quoted(&said)
    );
    let made = |meta: &str| {
        let rewrite = Rewrite::new(answer.clone()).remove(&[Slot::Error]);
        rewrite.insert_at_top(&format!("{result}{meta}}}")).try_into_message()
    };
    // An error that is nested to the limit has no place in it.
    let made = made(&format!(",\"_meta\":{{\"pontoon/error\":{error}}}")).or_else(|_| made(""));
    made.unwrap_or_else(|_| answer.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i64, message: &str) -> Message {
        Message::own(crate::error::ErrorObject::new(code, message).answer("1"))
    }

    #[test]
    fn what_goes_wrong_in_a_tool_is_told_from_what_the_protocol_says() {
        for (code, said, expected) in [
            (-32000, "the disk is full", true),
            (-32603, "Cannot read properties of undefined", true),
            (-32602, "Invalid arguments for tool greet: name is required", true),
            (-32002, "the file was not found", true),
            (17, "odd", true),
            (-32602, "Unknown tool: greet", false),
            (-32602, "Tool greet not found", false),
            (-32603, "there is no tool \"greet\"", false),
            (-32601, "Method not found", false),
            (-32600, "Invalid Request", false),
            (-32700, "Parse error", false),
            (-32042, "visit this address first", false),
            (-32021, "sampling is needed", false),
            (-31504, "it took too long", false),
            (-31502, "the server ended", false),
        ] {
            assert_eq!(is_of_tool(&error(code, said), "greet"), expected, "{code} {said}");
        }
        let result = Message::own(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(!is_of_tool(&result, "greet"));
    }

    #[track_caller]
    fn check(era: Era, error: &str, expected: &str) {
        let answer = Message::own(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        assert_eq!(std::str::from_utf8(as_result(&answer, era).text()).unwrap(), expected);
    }

    #[test]
    fn a_failure_becomes_a_result_that_says_all_of_it() {
        check(
            Era::Legacy,
            r#"{"code":-32000,"message":"no \"room\""}"#,
            r#"{"result":{"content":[{"type":"text","text":"no \"room\""}],"isError":true,"_meta":{"pontoon/error":{"code":-32000,"message":"no \"room\""}}},"jsonrpc":"2.0","id":1}"#,
        );
        check(
            Era::Modern,
            r#"{"code":1,"message":"m","data":{"at":2.0}}"#,
            r#"{"result":{"resultType":"complete","content":[{"type":"text","text":"m\n{\"at\":2.0}"}],"isError":true,"_meta":{"pontoon/error":{"code":1,"message":"m","data":{"at":2.0}}}},"jsonrpc":"2.0","id":1}"#,
        );
    }

    #[test]
    fn an_error_that_is_nested_to_the_limit_is_told_in_words() {
        let data = format!("{}{}", "[".repeat(126), "]".repeat(126));
        let text = format!(r#"{{"code":1,"message":"m","data":{data}}}"#);
        let answer = Message::own(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{text}}}"#));
        let made = as_result(&answer, Era::Legacy);
        assert!(made.has(Slot::IsError) && !made.has(Slot::ResultMeta), "{made:?}");
    }
}

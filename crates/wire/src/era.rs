//! The two eras, each put in terms of the other.
//!
//! A modern request describes itself in `_meta`; a legacy one relies on a handshake. A modern result
//! says of which type it is; a legacy one does not. These functions add and take away exactly that,
//! by edits, and leave the rest of the text alone.

use bytes::Bytes;

use crate::error::code;
use crate::json::entries;
use crate::message::{Message, quoted, string_value};
use crate::method;
use crate::revision::Revision;
use crate::rewrite::Rewrite;
use crate::slot::Slot;

/// What a modern request must say of its client; each a JSON text.
#[derive(Debug, Clone)]
pub struct ClientFacts {
    /// The client's capabilities.
    pub capabilities: Bytes,
    /// Its name and version.
    pub info: Bytes,
    /// The log level it wants.
    pub log_level: Option<Bytes>,
}

/// A legacy request for a modern server: it gains the `_meta` that describes it.
pub fn to_modern_request(request: Message, client: &ClientFacts) -> Rewrite {
    // These mean something only in the modern era, so a legacy client has no business with them.
    let request =
        Rewrite::new(request).remove(&[Slot::RequestState, Slot::InputResponses]).into_message();
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut members = format!(
        "{}:\"{}\",{}:{},{}:{}",
        quoted(Slot::MetaVersion.name()),
        Revision::NEWEST_MODERN,
        quoted(Slot::MetaCapabilities.name()),
        text(&client.capabilities),
        quoted(Slot::MetaClientInfo.name()),
        text(&client.info),
    );
    if let Some(level) = &client.log_level {
        members += &format!(",{}:{}", quoted(Slot::MetaLogLevel.name()), text(level));
    }
    let has_meta = request.raw(Slot::Meta).is_some_and(|meta| meta.first() == Some(&b'{'));
    let has_params = request.has(Slot::Params);
    let rewrite = Rewrite::new(request);
    match (has_params, has_meta) {
        (true, true) => rewrite.insert_into(Slot::Meta, &members),
        (true, false) if rewrite.message().has(Slot::Meta) => {
            rewrite.replace(Slot::Meta, format!("{{{members}}}"))
        }
        (true, false) => rewrite.insert_into(Slot::Params, &format!("\"_meta\":{{{members}}}")),
        (false, _) => rewrite.insert_at_top(&format!("\"params\":{{\"_meta\":{{{members}}}}}")),
    }
}

/// A modern request for a legacy server: it loses what only the modern era knows.
pub fn to_legacy_request(request: Message) -> Rewrite {
    Rewrite::new(request)
        .remove(&[
            Slot::MetaVersion,
            Slot::MetaCapabilities,
            Slot::MetaClientInfo,
            Slot::MetaLogLevel,
        ])
        .remove(&[Slot::RequestState, Slot::InputResponses])
}

/// The answer of a legacy server, for a modern client that asked with `method`.
pub fn to_modern_answer(answer: Message, method: &str) -> Rewrite {
    if method == method::READ_RESOURCE && answer.raw(Slot::ErrorCode) == Some(b"-32002") {
        return Rewrite::new(answer).replace(Slot::ErrorCode, code::INVALID_PARAMS.to_string());
    }
    let mut members = Vec::new();
    if !answer.has(Slot::ResultType) {
        members.push("\"resultType\":\"complete\"");
    }
    if is_cacheable(method) && !answer.has(Slot::TtlMs) {
        members.push("\"ttlMs\":0");
    }
    if is_cacheable(method) && !answer.has(Slot::CacheScope) {
        members.push("\"cacheScope\":\"private\"");
    }
    Rewrite::new(answer).insert_into(Slot::Result, &members.join(","))
}

/// The answer of a modern server, for a legacy client.
pub fn to_legacy_answer(answer: Message) -> Rewrite {
    Rewrite::new(answer)
        .remove(&[Slot::ResultType, Slot::TtlMs, Slot::CacheScope])
        .remove(&[Slot::ResultServerInfo])
}

/// Whether results of this method carry caching hints in the modern era.
pub fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        method::DISCOVER
            | method::LIST_TOOLS
            | method::LIST_PROMPTS
            | method::LIST_RESOURCES
            | method::LIST_TEMPLATES
            | method::READ_RESOURCE
    )
}

/// The result that puts questions to a modern client: pairs of a key and the question as a legacy
/// server asked it.
pub fn input_required<'q>(
    questions: impl IntoIterator<Item = (&'q str, &'q Message)>,
    state: &str,
) -> String {
    let requests: Vec<_> = questions
        .into_iter()
        .map(|(key, question)| {
            let method = String::from_utf8_lossy(question.raw(Slot::Method).unwrap_or(b"\"\""));
            let params = question.raw(Slot::Params).map(String::from_utf8_lossy);
            let params = params.map(|params| format!(",\"params\":{params}")).unwrap_or_default();
            format!("{}:{{\"method\":{method}{params}}}", quoted(key))
        })
        .collect();
    format!(
        "{{\"resultType\":\"input_required\",\"inputRequests\":{{{}}},\"requestState\":{}}}",
        requests.join(","),
        quoted(state),
    )
}

/// The questions in a modern server's `input_required` result, as a legacy server would ask them,
/// each with its key. Their ids are null until someone gives them one.
pub fn questions_in(answer: &Message) -> Vec<(String, Message)> {
    let Some(requests) = answer.raw(Slot::InputRequests) else { return Vec::new() };
    let question = |request: &[u8]| {
        let member = |name| crate::json::find(request, name).map(String::from_utf8_lossy);
        let params = member("params").map(|params| format!(",\"params\":{params}"));
        let method = member("method")?;
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":{method}{}}}",
            params.unwrap_or_default()
        );
        Message::parse(text.as_bytes()).ok()
    };
    entries(requests, 0..requests.len())
        .filter_map(|entry| {
            let key = string_value(&requests[entry.key])?.into_owned();
            Some((key, question(&requests[entry.value])?))
        })
        .collect()
}

/// The request again, with what the client answered; `state` is the server's own, as it wrote it.
pub fn with_responses(
    request: &Rewrite,
    responses: &[(String, String)],
    state: Option<&[u8]>,
) -> Rewrite {
    let responses: Vec<_> =
        responses.iter().map(|(key, value)| format!("{}:{value}", quoted(key))).collect();
    let mut members = format!("\"inputResponses\":{{{}}}", responses.join(","));
    if let Some(state) = state {
        members += &format!(",\"requestState\":{}", String::from_utf8_lossy(state));
    }
    Rewrite::new(request.clone().into_message()).insert_into(Slot::Params, &members)
}

/// A notification of a modern subscription, for a legacy client.
pub fn to_legacy_note(note: &Message) -> Message {
    Rewrite::new(note.clone()).remove(&[Slot::MetaSubscriptionId]).into_message()
}

/// A notification of a legacy server, for a modern subscription with this id.
pub fn to_modern_note(note: &Message, subscription: &[u8]) -> Message {
    let id = String::from_utf8_lossy(subscription);
    let member = format!("{}:{id}", quoted(Slot::MetaSubscriptionId.name()));
    let rewrite = Rewrite::new(note.clone());
    match (note.has(Slot::Params), note.has(Slot::Meta)) {
        (true, true) => rewrite.insert_into(Slot::Meta, &member),
        (true, false) => rewrite.insert_into(Slot::Params, &format!("\"_meta\":{{{member}}}")),
        (false, _) => rewrite.insert_at_top(&format!("\"params\":{{\"_meta\":{{{member}}}}}")),
    }
    .into_message()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(found: &Message, expected: &str) {
        assert_eq!(std::str::from_utf8(found.text()).unwrap(), expected);
    }

    const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"}"#;

    #[test]
    fn a_request_there_and_back_is_the_same() {
        let client = ClientFacts {
            capabilities: Bytes::from_static(b"{\"roots\":{}}"),
            info: Bytes::from_static(b"{\"name\":\"c\"}"),
            log_level: None,
        };
        let cases = [
            (
                r#"{"id":1,"params":{"_meta":{"x":1},"a":2}}"#,
                format!(r#"{{"id":1,"params":{{"_meta":{{{META},"x":1}},"a":2}}}}"#),
            ),
            (
                r#"{"id":1,"params":{"a":2}}"#,
                format!(r#"{{"id":1,"params":{{"_meta":{{{META}}},"a":2}}}}"#),
            ),
            (
                r#"{"id":1,"params":{"_meta":5}}"#,
                format!(r#"{{"id":1,"params":{{"_meta":{{{META}}}}}}}"#),
            ),
            (
                r#"{"id":1,"params":{"requestState":"s"}}"#,
                format!(r#"{{"id":1,"params":{{"_meta":{{{META}}}}}}}"#),
            ),
            (r#"{"id":1}"#, format!(r#"{{"params":{{"_meta":{{{META}}}}},"id":1}}"#)),
        ];
        for (legacy, modern) in cases {
            let found = to_modern_request(message(legacy), &client).into_message();
            check(&found, &modern);
        }
        let back = to_legacy_request(message(&format!(
            r#"{{"id":1,"params":{{"_meta":{{{META},"x":1}},"requestState":"s","a":2}}}}"#
        )));
        check(&back.into_message(), r#"{"id":1,"params":{"_meta":{"x":1},"a":2}}"#);
    }

    #[test]
    fn results_gain_and_lose_what_the_modern_era_wants() {
        let legacy = r#"{"id":1,"result":{"contents":[]}}"#;
        let modern = r#"{"id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}}"#;
        let to_modern =
            |text: &str, method: &str| to_modern_answer(message(text), method).into_message();
        check(&to_modern(legacy, method::READ_RESOURCE), modern);
        check(&to_legacy_answer(message(modern)).into_message(), legacy);
        let error = r#"{"id":1,"error":{"code":-32002,"message":"no"}}"#;
        check(
            &to_modern(error, method::READ_RESOURCE),
            r#"{"id":1,"error":{"code":-32602,"message":"no"}}"#,
        );
        check(&to_modern(error, method::CALL_TOOL), error);
    }

    #[test]
    fn questions_cross_both_ways() {
        let question =
            message(r#"{"id":5,"method":"elicitation/create","params":{"message":"?"}}"#);
        let result = input_required([("q1", &question)], "state");
        let expected = r#"{"resultType":"input_required","inputRequests":{"q1":{"method":"elicitation/create","params":{"message":"?"}}},"requestState":"state"}"#;
        assert_eq!(result, expected);
        let answer = message(&format!(r#"{{"id":1,"result":{result}}}"#));
        let questions = questions_in(&answer);
        assert_eq!(questions.len(), 1);
        assert_eq!(questions[0].0, "q1");
        check(
            &questions[0].1,
            r#"{"jsonrpc":"2.0","id":null,"method":"elicitation/create","params":{"message":"?"}}"#,
        );
        let empty =
            Rewrite::new(message(r#"{"id":1,"params":{}}"#)).insert_into(Slot::Params, "\"a\":1");
        let again = with_responses(&empty, &[], None);
        check(&again.into_message(), r#"{"id":1,"params":{"inputResponses":{},"a":1}}"#);
        let request = Rewrite::new(message(r#"{"id":1,"params":{"name":"t"}}"#));
        let again = with_responses(
            &request,
            &[("q1".into(), "{\"action\":\"decline\"}".into())],
            Some(b"\"s\""),
        );
        check(
            &again.into_message(),
            r#"{"id":1,"params":{"inputResponses":{"q1":{"action":"decline"}},"requestState":"s","name":"t"}}"#,
        );
    }
}

//! What is said: answers with the faults that were asked for.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::{How, Rude, error, framing};

/// Answers anything but a call. `body` has the members beside the id.
pub(crate) fn send(rude: &Rude, id: &Value, body: &Value) {
    let message = message(id, body);
    if rude.is_rude_from_start {
        spoil(rude, id, message);
    } else {
        framing::write(rude, &message);
    }
}

/// Answers a call with `text`, and does everything around it that is not an answer.
pub(crate) fn send_call(rude: &Rude, id: &Value, text: &str, token: &Value) {
    if rude.is(How::AsksUnasked) {
        ask_unasked(rude);
    }
    if rude.is(How::BadProgress) {
        progress(rude, &json!("nobody's"), 1);
        progress(rude, token, 5);
        progress(rude, token, 3);
    }
    let said = if rude.is(How::NotUtf8) { format!("ä{text}") } else { text.to_owned() };
    let mut result = json!({ "content": [{ "type": "text", "text": said }] });
    if rude.is(How::Nulls) {
        for member in ["isError", "structuredContent", "_meta"] {
            result[member] = Value::Null;
        }
        result["content"][0]["annotations"] = Value::Null;
    }
    if rude.is(How::UnfitStructured) {
        result["structuredContent"] = serde_json::from_str(text).unwrap_or_default();
        result["content"][0]["text"] = json!("done");
    }
    if rude.is(How::LooseContent) {
        result = json!({ "content": { "text": said } });
    }
    if rude.is(How::RawResult) {
        result = said.into();
    }
    spoil(rude, id, message(id, &json!({ "result": result })));
    if rude.is(How::BadProgress) {
        progress(rude, token, 9);
    }
}

/// Sends a request of the server's own, under an id that a client likely uses too.
pub(crate) fn ask_unasked(rude: &Rude) {
    framing::write(rude, &json!({ "id": 1, "method": "roots/list", "params": {} }));
}

/// Asks for the client's roots, the first time.
pub(crate) fn ask_roots(rude: &Rude) {
    if !rude.has_asked.swap(true, Ordering::Relaxed) {
        framing::write(rude, &json!({ "id": "roots", "method": "roots/list" }));
    }
}

fn message(id: &Value, body: &Value) -> Value {
    let mut message = json!({ "id": id });
    if let (Some(message), Some(body)) = (message.as_object_mut(), body.as_object()) {
        message.extend(body.clone());
    }
    message
}

pub(crate) fn progress(rude: &Rude, token: &Value, progress: u64) {
    // A call without a token gets one that the server made up.
    let token = if token.is_null() { json!("made up") } else { token.clone() };
    let params = json!({ "progressToken": token, "progress": progress, "total": 10 });
    framing::write(rude, &json!({ "method": "notifications/progress", "params": params }));
}

/// Writes `message`, an answer to `id`, with its faults.
fn spoil(rude: &Rude, id: &Value, mut message: Value) {
    let digits = id.to_string();
    match () {
        () if rude.is(How::WrongId) => message["id"] = (id.as_i64().unwrap_or(0) + 1000).into(),
        () if rude.is(How::StringId) => {
            message["id"] = id.as_str().map_or(digits.clone(), str::to_owned).into();
        }
        () if rude.is(How::NullIdError) => {
            message = error(-32600, "Invalid Request");
            message["id"] = Value::Null;
        }
        () if rude.is(How::NullError) => message["error"] = Value::Null,
        () if rude.is(How::BothResultAndError) => {
            message["error"] = json!({ "code": -32000, "message": "and an error" });
        }
        () if rude.is(How::NeitherResultNorError) => message = json!({ "id": id }),
        () if rude.is(How::ErrorString) => message = json!({ "id": id, "error": "it broke" }),
        () if rude.is(How::ErrorCodeString) => {
            let error = json!({ "code": "E_BROKE", "message": "it broke" });
            message = json!({ "id": id, "error": error });
        }
        () if rude.is(How::CallError) => {
            message = error(-32000, "the tool failed");
            message["id"] = id.clone();
        }
        () => {}
    }
    if rude.is(How::UnknownId) {
        framing::write(rude, &json!({ "id": 987_654_321, "result": {} }));
    }
    match () {
        () if rude.is(How::FloatId) && id.is_number() => {
            let text = message.to_string().replacen(&digits, &format!("{digits}.0"), 1);
            framing::write_text(rude, &format!(r#"{{"jsonrpc":"2.0",{}"#, &text[1..]));
        }
        () if rude.is(How::TwinKeys) => {
            let text = message.to_string();
            framing::write_text(rude, &format!(r#"{{"jsonrpc":"2.0","id":-1,{}"#, &text[1..]));
        }
        () if rude.is(How::HalfPair) => {
            let text = message.to_string().replacen("\"text\":\"", "\"text\":\"\\ud83d", 1);
            framing::write_text(rude, &format!(r#"{{"jsonrpc":"2.0",{}"#, &text[1..]));
        }
        () if rude.is(How::Deep) => {
            let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
            let result = format!(r#"{{"content":[],"deep":{open}{close}}}"#);
            let text = format!(r#"{{"jsonrpc":"2.0","id":{digits},"result":{result}}}"#);
            framing::write_text(rude, &text);
        }
        () => framing::write(rude, &message),
    }
    if rude.is(How::Duplicate) {
        framing::write(rude, &message);
    }
}

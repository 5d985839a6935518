//! Messages: what the scanner takes is one line of JSON and means what it meant, edits included.

use bytes::BytesMut;
use pontoon_wire::{Message, Rewrite, ScanError, Slot};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) const SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1.50e3},"_meta":{"progressToken":"t"}}}"#,
    "{\"method\":\"x\",\r\n\t\"params\" : { \"_meta\" : {} , \"uri\":\"\\u00e9\\ud83d\\ude00\"},\n\"id\":\"a\\\"b\"}",
    r#"{"jsonrpc":"2.0","id":12345678901234567890123,"result":{"content":[{"type":"text","text":"日本"}],"resultType":"complete","_meta":{"a":null}}}"#,
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no","data":[true,false,null]}}"#,
    r#"{"\u0069d":1,"id":2,"params":[[[[{}]]]]}"#,
    r#" { } "#,
    r#"{"a":{}}{"b":[]}"#,
];

/// Members the bridge reads, and where a plain parser finds them.
const PLACES: &[(Slot, &str)] = &[
    (Slot::Jsonrpc, "/jsonrpc"),
    (Slot::Id, "/id"),
    (Slot::Method, "/method"),
    (Slot::Params, "/params"),
    (Slot::Result, "/result"),
    (Slot::Error, "/error"),
    (Slot::Meta, "/params/_meta"),
    (Slot::Name, "/params/name"),
    (Slot::Uri, "/params/uri"),
    (Slot::Arguments, "/params/arguments"),
    (Slot::ProgressToken, "/params/progressToken"),
    (Slot::MetaProgressToken, "/params/_meta/progressToken"),
    (Slot::ErrorCode, "/error/code"),
    (Slot::ErrorMessage, "/error/message"),
];

/// The scanner and a plain parser agree on what is a message and what is in it.
pub fn message(data: &[u8]) {
    let value = serde_json::from_slice::<Value>(data).ok();
    let message = match Message::parse(BytesMut::from(data)) {
        Ok(message) => message,
        Err(error) => {
            let is_ours = matches!(error, ScanError::Duplicate { .. } | ScanError::TooDeep { .. });
            let is_object = value.is_some_and(|value| value.is_object());
            assert!(is_ours || !is_object, "refused: {error}");
            return;
        }
    };
    is_one_line(message.text());
    let plain: Vec<_> =
        data.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }).collect();
    assert_eq!(message.text(), &plain, "only line breaks change");
    serde_json::from_slice::<&RawValue>(message.text()).expect("what we take is JSON");
    let _ = (message.check_envelope(), message.kind(), message.method());

    // A plain parser refuses numbers beyond a float; there is nothing to compare with then.
    let Some(value) = value else { return };
    assert_eq!(serde_json::from_slice::<Value>(message.text()).ok().as_ref(), Some(&value));
    for (slot, pointer) in PLACES {
        let raw =
            message.raw(*slot).map(|raw| serde_json::from_slice(raw).expect("a value is JSON"));
        let there = value.pointer(pointer).filter(|_| is_in_objects(&value, pointer));
        assert_eq!(raw.as_ref(), there, "{slot:?}");
    }
    edits(&message, &value);
}

/// Whether the path leads through objects only: a pointer steps into arrays too.
fn is_in_objects(value: &Value, pointer: &str) -> bool {
    let parents = pointer.match_indices('/').skip(1).map(|(at, _)| &pointer[..at]);
    parents.into_iter().all(|parent| value.pointer(parent).is_some_and(Value::is_object))
}

fn edits(message: &Message, value: &Value) {
    let check = |edit: &dyn Fn(Rewrite) -> Rewrite, expected: Value| {
        let text = edit(Rewrite::new(message.clone())).finish().to_bytes();
        is_one_line(&text);
        let edited: Value = serde_json::from_slice(&text).expect("an edited message is JSON");
        assert_eq!(edited, expected, "{}", String::from_utf8_lossy(&text));
    };

    let mut expected = value.clone();
    for pointer in ["/id", "/params/_meta/progressToken"] {
        let place = expected.pointer_mut(pointer).filter(|_| is_in_objects(value, pointer));
        place.into_iter().for_each(|place| *place = 7.into());
    }
    check(&|edit| edit.replace(Slot::Id, "7").replace(Slot::MetaProgressToken, "7"), expected);

    let mut expected = value.clone();
    let top = expected.as_object_mut().expect("a message is an object");
    top.retain(|name, _| !["jsonrpc", "id", "params"].contains(&name.as_str()));
    check(&|edit| edit.remove(&[Slot::Params, Slot::Jsonrpc, Slot::Id]), expected);

    let mut expected = value.clone();
    // A member that is there already wins, because it stands later.
    let top = expected.as_object_mut().expect("a message is an object");
    top.entry("fuzz").or_insert(true.into());
    if let Some(params) = top.get_mut("params").and_then(Value::as_object_mut) {
        params.entry("fuzz").or_insert(true.into());
    }
    let insert = |edit: Rewrite| {
        edit.insert_at_top("\"fuzz\":true").insert_into(Slot::Params, "\"fuzz\":true")
    };
    check(&insert, expected);
}

/// One frame is one line, whatever was in it.
pub(crate) fn is_one_line(text: &[u8]) {
    assert!(!text.iter().any(|byte| b"\r\n".contains(byte)), "a frame is one line");
}

//! The words of the client for the program, and the program's for the client.

use std::borrow::Cow;

use pontoon_wire::{Message, Slot, json, string_value};

use crate::conversation::{Asker, ToolRequest, failure};
use crate::protocol::{IpcError, frame};

/// A call as the program gets it.
pub(super) fn call(
    id: u64,
    request: &ToolRequest,
    answers_by_id: bool,
) -> Result<Vec<u8>, IpcError> {
    let head = format!(
        "{{\"id\":{id},\"method\":\"call_tool\",\"params\":{{\"name\":{},\"arguments\":",
        pontoon_wire::quoted(&request.name())
    );
    let meta = request.meta().filter(|_| answers_by_id);
    let (key, meta): (&[u8], _) = meta.map_or((b"", b"".as_slice()), |meta| (b",\"meta\":", meta));
    Ok(frame(&[head.as_bytes(), request.arguments(), b"}", key, meta, b"}"])?)
}

/// Word for the program that a call was given up.
pub(super) fn cancel(id: u64) -> Vec<u8> {
    let cancel = format!("{{\"method\":\"cancel\",\"params\":{{\"id\":{id}}}}}");
    frame(&[cancel.as_bytes()]).unwrap_or_default()
}

/// What the client hears of an answer.
pub(super) fn answer(asker: &Asker, message: &Message) -> Vec<u8> {
    if let Some(result) = message.raw(Slot::Result).filter(|raw| raw.first() == Some(&b'{')) {
        return asker.answer(&with_content(result));
    }
    let error = message.raw(Slot::Error).filter(|raw| raw.first() == Some(&b'{')).unwrap_or(b"{}");
    let text = |name| json::find(error, name).and_then(string_value);
    let kind = text("type").unwrap_or("IPCError".into());
    let what =
        text("message").unwrap_or("the program's answer has neither a result nor an error".into());
    asker.answer(failure(&kind, &what).as_bytes())
}

/// The result with the content that clients insist on.
fn with_content(result: &[u8]) -> Cow<'_, [u8]> {
    if json::find(result, "content").is_some() {
        return result.into();
    }
    let comma: &[u8] = match json::entries(result, 0..result.len()).next() {
        Some(_) => b",",
        None => b"",
    };
    [b"{\"content\":[]", comma, &result[1..]].concat().into()
}

/// Which call the program tells the progress of, and what of it, as members of the note for the client.
pub(super) fn progress(message: &Message) -> Option<(u64, String)> {
    let params = message.raw(Slot::Params)?;
    let id = number(json::find(params, "id"))?;
    let is_number = |raw: &[u8]| raw.first().is_some_and(|it| it.is_ascii_digit() || *it == b'-');
    json::find(params, "progress").filter(|raw| is_number(raw))?;
    let member = |name: &str| {
        let value = json::find(params, name).filter(|value| *value != b"null")?;
        Some(format!("\"{name}\":{}", String::from_utf8_lossy(value)))
    };
    let members: Vec<_> = ["progress", "total", "message"].into_iter().filter_map(member).collect();
    Some((id, members.join(",")))
}

pub(super) fn number(raw: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(raw?).ok()?.parse().ok()
}

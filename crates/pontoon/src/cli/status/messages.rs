//! The last messages of bridges, one on each line.

use std::fmt::Write as _;

use serde_json::Value;

use super::report::{Paint, clean};

/// The last messages of those bridges that note them.
pub(super) fn messages(bridges: &[Value], has_colour: bool) -> String {
    let paint = Paint(has_colour);
    let mut text = String::new();
    for bridge in bridges {
        let Some(last) = bridge["messages"]["last"].as_array() else { continue };
        let (pid, total) = (&bridge["pid"], &bridge["messages"]["total"]);
        let head = format!("\nmessages of {pid}: the last {} of {total}\n", last.len());
        text += &paint.dim(&head);
        last.iter().for_each(|message| line(&mut text, message, paint));
    }
    text
}

fn line(text: &mut String, message: &Value, paint: Paint) {
    let word = |name: &str| clean(message[name].as_str().unwrap_or("-"));
    let time = word("time");
    // The day is known.
    let time = time.split_once('T').map_or(time.as_str(), |(_, time)| time).trim_end_matches('Z');
    let arrow = if message["direction"] == "sent" { "→" } else { "←" };
    let took = message["took_ms"].as_f64().map(|took| format!(" in {took:.1} ms"));
    let (kind, method, id) = (word("kind"), word("method"), word("id"));
    let bytes = message["bytes"].as_u64().unwrap_or_default();
    let told = writeln!(
        text,
        "{} {arrow} {kind:<12} {method:<30} id {id:<15} {bytes:>8} bytes{}",
        paint.dim(time),
        took.unwrap_or_default()
    );
    told.expect("a string takes everything");
    if let Some(beginning) = message["text"].as_str() {
        // It was cleaned by the bridge, and is so again: it goes to a terminal.
        let beginning = pontoon_supervise::plain_text(beginning.to_owned());
        writeln!(text, "    {}", paint.dim(&beginning)).expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_stand_in_columns_with_how_they_begin() {
        let message = |direction: &str, kind: &str, took: Value| {
            json!({
                "time": "2026-11-18T05:10:11.123456Z", "direction": direction, "kind": kind, "method": "tools/call",
                "id": "17", "bytes": 120, "took_ms": took,
            })
        };
        let mut heard = message("heard", "result", json!(1.26));
        heard["text"] = json!("{\"a\":\"\u{1b}[31mb\"}");
        let last = [message("sent", "request", Value::Null), heard];
        let bridges =
            [json!({"pid": 1}), json!({"pid": 2, "messages": {"total": 9, "last": last}})];
        let expected = "
messages of 2: the last 2 of 9
05:10:11.123456 → request      tools/call                     id 17                   120 bytes
05:10:11.123456 ← result       tools/call                     id 17                   120 bytes in 1.3 ms
    {\"a\":\"b\"}
";
        assert_eq!(messages(&bridges, false), expected);
    }
}

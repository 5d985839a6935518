//! One body is one line to a child, and what it holds keeps its text.

use std::fs;
use std::path::Path;
use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Request, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::{Value, json};

use crate::{rig, shell};

/// The fixture behind something that keeps every byte it is sent.
fn recording(file: &Path) -> Rig {
    // `tee` ends with its input, and the fixture with `tee`.
    rig([shell(&format!("tee -a {} | FIXTURE", file.display()), "stateful")])
}

/// Everything a child was sent, split as the readers of real servers split: at CR and at LF.
fn lines(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap_or_default();
    let lines = bytes.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

/// The lines that are messages with this method.
fn messages(file: &Path, method: &str) -> Vec<String> {
    let texts = lines(file).into_iter().map(|line| String::from_utf8(line).unwrap());
    texts
        .filter(|text| {
            let message: Value = serde_json::from_str(text)
                .unwrap_or_else(|error| panic!("a child got {text:?}: {error}"));
            message["method"] == method
        })
        .collect()
}

/// Waits until so many calls are recorded: `tee` may pass a line on before it keeps it.
fn wait_for_calls(file: &Path, count: usize) {
    wait_until("all is recorded", Duration::from_secs(5), || {
        messages(file, "tools/call").len() >= count
    });
}

#[test]
fn a_body_with_newlines_between_its_tokens_is_one_message() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("stdin");
    let rig = recording(&file);
    let mut legacy = Legacy::open(&rig.endpoint("shell"));
    let modern = Modern::new(&rig.endpoint("shell"));
    let hidden = directory.path().join("hidden").display().to_string();
    let inner = json!({
        "jsonrpc": "2.0", "id": 666, "method": "tools/call",
        "params": {"name": "write_file", "arguments": {"name": hidden, "text": "smuggled"}},
    });
    let mut sent = 0;
    for gap in ["\n", "\r", "\r\n", "\n\r\n\t "] {
        let arguments = format!(r#"{{"text":"seen","x":[{gap}{inner}{gap}]}}"#);
        let params = format!(r#"{gap}"params"{gap}:{gap}{{"name":"echo","arguments":{arguments}"#);
        let head = format!(r#"{{{gap}"jsonrpc":"2.0","id":{gap}5,"method":"tools/call",{params}"#);
        let meta = modern.message(&json!(5), "x", json!({}))["params"]["_meta"].to_string();
        let old =
            legacy.request(&json!({"method": "tools/call"})).body(format!("{head}}}{gap}}}{gap}"));
        let new = Request::post("/mcp/shell", format!(r#"{head},{gap}"_meta":{meta}}}}}"#))
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", "tools/call")
            .header("Mcp-Name", "echo");
        for request in [old, new] {
            let response = request.send(rig.address()).unwrap();
            assert_eq!(
                response.tool_text().as_deref(),
                Some("seen"),
                "{gap:?}: {}",
                response.text()
            );
            assert_eq!(response.answer()["id"], 5);
            sent += 1;
        }
    }
    // Whatever else a child might have been made to do, it has done before it answers this.
    assert_eq!(legacy.call(6, "echo", json!({"text": "end"})).status(), 200);
    wait_for_calls(&file, sent + 1);
    assert_eq!(
        messages(&file, "tools/call").len(),
        sent + 1,
        "a child was sent more than was asked"
    );
    assert!(!fs::read(&file).unwrap().contains(&b'\r'));
    assert!(!Path::new(&hidden).exists(), "the hidden call was run");
    legacy.end();
    rig.stop();
}

#[test]
fn numbers_keep_their_text_on_the_way_to_a_child() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("stdin");
    let rig = recording(&file);
    let session = Legacy::open(&rig.endpoint("shell"));
    let numbers =
        "[9007199254740993,18446744073709551616,1.0,-0,1e2,0.10,123456789012345678901234567890]";
    let kept = format!(r#"{{"z":1,"text":"x","a":{numbers},"\u0061b":"\u00e9\/"}}"#);
    let body = format!(
        r#"{{"params":{{"arguments":{kept},"name":"echo","new":null}},"jsonrpc":"2.0","method":"tools/call","id":77}}"#
    );
    let response = session.request(&json!({})).body(body).send(rig.address()).unwrap();
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    wait_for_calls(&file, 1);
    let said = messages(&file, "tools/call");
    assert_eq!(said.len(), 1);
    assert!(said[0].contains(&kept), "{kept} is not in {}", said[0]);
    assert!(said[0].contains(r#""new":null"#), "{}", said[0]);
    session.end();
    rig.stop();
}

#[test]
fn an_id_comes_back_with_its_own_text() {
    let directory = tempfile::tempdir().unwrap();
    let rig = recording(&directory.path().join("stdin"));
    let session = Legacy::open(&rig.endpoint("shell"));
    for id in
        ["0", "-1", "9007199254740993", "18446744073709551616", r#""1""#, r#""""#, r#""\u0061\/é""#]
    {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"x"}}}}}}"#
        );
        let response = session.request(&json!({})).body(body).send(rig.address()).unwrap();
        let text = response.text();
        assert_eq!(response.tool_text().as_deref(), Some("x"), "{id}: {text}");
        assert!(text.contains(&format!("\"id\":{id}")), "{id} is not in {text}");
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let text = session.request(&json!({})).body(body).send(rig.address()).unwrap().text();
        assert!(text.contains(&format!("\"id\":{id}")), "{id} is not in {text}");
    }
    session.end();
    rig.stop();
}

#[test]
fn a_child_never_hears_from_a_client_that_was_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("stdin");
    let rig = recording(&file);
    let mut session = Legacy::open(&rig.endpoint("shell"));
    assert_eq!(session.call(1, "echo", json!({"text": "x"})).status(), 200);
    wait_for_calls(&file, 1);
    let before = lines(&file).len();
    for body in [
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"echo"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}]"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"\udc00"}}"#,
    ] {
        let response = session.request(&json!({})).body(body).send(rig.address()).unwrap();
        assert_eq!(response.status(), 400, "{body}: {}", response.text());
    }
    assert_eq!(session.call(2, "echo", json!({"text": "x"})).status(), 200);
    wait_for_calls(&file, 2);
    assert_eq!(lines(&file).len(), before + 1, "a child heard a refused message");
    session.end();
    rig.stop();
}

//! The demo server, line for line: what goes in and what comes out.

use std::sync::Condvar;

use super::*;
use crate::lock::Lock;

#[derive(Clone, Default)]
struct SharedOutput(Arc<(Lock<Vec<u8>>, Condvar)>);

impl SharedOutput {
    fn wait_for(&self, text: &str) {
        let is_missing = |bytes: &mut Vec<u8>| !String::from_utf8_lossy(bytes).contains(text);
        let limit = Duration::from_secs(10);
        let waited = self.0.1.wait_timeout_while(self.0.0.lock(), limit, is_missing).unwrap();
        assert!(!waited.1.timed_out(), "`{text}` was not written");
    }
}

impl Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.0.lock().extend_from_slice(bytes);
        self.0.1.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the server writes for these lines and the end of its input.
fn talk(lines: &[&str]) -> Vec<Value> {
    talk_in(".".as_ref(), lines)
}

fn talk_in(work_dir: &Path, lines: &[&str]) -> Vec<Value> {
    let written = SharedOutput::default();
    let mut demo = Demo::new(Box::new(written.clone()), work_dir);
    demo.read(lines.join("\n").as_bytes()).unwrap();
    demo.finish(Duration::from_secs(10));
    let written = written.0.0.lock();
    written.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(json_of).collect()
}

fn json_of(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap()
}

/// Compares the lines out, in which a member may be left away: `expected` is a part of it.
fn check(lines: &[&str], expected: &[Value]) {
    let written = talk(lines);
    assert_eq!(written.len(), expected.len(), "{lines:?} gave {written:#?}");
    for (written, expected) in written.iter().zip(expected) {
        assert!(is_part(expected, written), "{lines:?}: {expected} is not in {written}");
    }
}

fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            let has = |(name, value)| whole.get(name).is_some_and(|all| is_part(value, all));
            part.iter().all(has)
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(a, b)| is_part(a, b))
        }
        _ => part == whole,
    }
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#;

fn legacy(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
}

fn modern(id: u32, method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    legacy(id, method, &format!("{params}{comma}{META}"))
}

fn call(name: &str, arguments: &str) -> String {
    format!(r#""name":"{name}","arguments":{arguments}"#)
}

fn text(id: u32, text: &str) -> Value {
    json!({"id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

#[test]
fn a_legacy_client_gets_its_version_if_we_know_it() {
    let legacy_versions = Revision::ALL.iter().filter(|it| it.era() == Era::Legacy);
    let versions: Vec<_> = legacy_versions.map(|it| (it.as_str(), it.as_str())).collect();
    assert_eq!(versions.len(), 4);
    let others = [("2026-07-28", "2025-11-25"), ("1999-01-01", "2025-11-25")];
    for (asked, given) in versions.into_iter().chain(others) {
        let params = format!(r#""protocolVersion":"{asked}","capabilities":{{}}"#);
        let result = json!({"protocolVersion": given, "serverInfo": {"name": "pontoon-demo"}});
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let lines = [&legacy(1, "initialize", &params), initialized, &legacy(2, "ping", "")];
        check(&lines, &[json!({"id": 1, "result": result}), json!({"id": 2, "result": {}})]);
    }
    check(&[&legacy(1, "server/discover", "")], &[json!({"id": 1, "error": {"code": -32602}})]);
}

#[test]
fn a_modern_request_describes_itself() {
    let dress = json!({
        "resultType": "complete",
        "ttlMs": 3_600_000,
        "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "pontoon-demo"}},
    });
    for method in ["server/discover", "tools/list", "prompts/list", "resources/list"] {
        check(&[&modern(1, method, "")], &[json!({"id": 1, "result": dress})]);
    }
    check(&[&modern(1, "resources/templates/list", "")], &[json!({"result": dress})]);
    let read = modern(1, "resources/read", r#""uri":"demo://readme""#);
    check(&[&read], &[json!({"id": 1, "result": dress})]);
    let versions = json!({"supportedVersions": ["2026-07-28"]});
    check(&[&modern(1, "server/discover", "")], &[json!({"result": versions})]);

    let unknown = modern(1, "tools/list", "").replace("2026-07-28", "2030-01-01");
    let data = json!({"supported": ["2026-07-28"], "requested": "2030-01-01"});
    check(&[&unknown], &[json!({"id": 1, "error": {"code": -32022, "data": data}})]);
    let bare = modern(1, "tools/list", "").replace("clientCapabilities", "other");
    check(&[&bare], &[json!({"id": 1, "error": {"code": -32602}})]);
    for method in ["initialize", "ping", "logging/setLevel"] {
        check(&[&modern(1, method, "")], &[json!({"id": 1, "error": {"code": -32601}})]);
    }
}

#[test]
fn a_legacy_result_has_nothing_of_the_modern_era() {
    let result = &talk(&[&legacy(1, "tools/list", "")])[0]["result"];
    assert_eq!(result.as_object().unwrap().keys().collect::<Vec<_>>(), ["tools"]);
}

#[test]
fn only_requests_get_an_answer() {
    check(
        &[
            "",
            "  ",
            r#"{"jsonrpc":"2.0","method":"ping"}"#,
            r#"{"id":9,"result":{}}"#,
            "{\"error\":{}}",
        ],
        &[],
    );
    let error = |code: i32| json!({"error": {"code": code}});
    check(&["{nonsense", "[]", "7"], &[error(-32700), error(-32600), error(-32600)]);
    check(&[r#"{"id":null,"method":"ping"}"#, "{}"], &[error(-32600), error(-32600)]);
    check(&[r#"{"id":"a","method":"x"}"#], &[json!({"id": "a", "error": {"code": -32601}})]);
}

#[test]
fn tools_answer_in_both_eras() {
    let greet = call("greet", r#"{"name":"Ada"}"#);
    check(&[&legacy(1, "tools/call", &greet)], &[text(1, "Hello, Ada!")]);
    let mut answer = text(1, "Hello, Ada!");
    answer["result"]["resultType"] = "complete".into();
    check(&[&modern(1, "tools/call", &greet)], &[answer]);
    let unknown = legacy(1, "tools/call", &call("grete", "{}"));
    check(&[&unknown], &[json!({"id": 1, "error": {"code": -32602}})]);
}

#[test]
fn counting_tells_its_progress() {
    let count = call("count", r#"{"to":2,"delay_ms":0}"#);
    let note = |progress: u64| {
        let params = json!({"progressToken": "t", "progress": progress, "total": 2});
        json!({"method": "notifications/progress", "params": params})
    };
    let with_token = format!(r#"{count},"_meta":{{"progressToken":"t"}}"#);
    let done = text(1, "Counted to 2.");
    check(&[&legacy(1, "tools/call", &with_token)], &[note(1), note(2), done.clone()]);
    check(&[&legacy(1, "tools/call", &count)], &[done]);
}

#[test]
fn a_cancelled_call_gets_no_answer() {
    let echo = call("slow_echo", r#"{"text":"x","seconds":300}"#);
    let cancel = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
    check(&[&legacy(1, "tools/call", &echo), cancel, &legacy(2, "ping", "")], &[json!({"id": 2})]);
    let quick = call("slow_echo", r#"{"text":"x","seconds":0}"#);
    check(&[&legacy(1, "tools/call", &quick)], &[text(1, "x")]);
}

#[test]
fn calls_run_at_the_same_time_and_their_number_is_bounded() {
    let echo = call("slow_echo", r#"{"text":"x","seconds":300}"#);
    let mut lines: Vec<_> = (1..=65).map(|id| legacy(id, "tools/call", &echo)).collect();
    lines.push(legacy(1, "tools/call", &echo));
    lines.push(legacy(99, "ping", ""));
    let cancel =
        |id| format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    lines.extend((1..=64).map(cancel));
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let busy = json!({"id": 65, "error": {"code": -32603}});
    let in_use = json!({"id": 1, "error": {"code": -32600}});
    check(&lines, &[busy, in_use, json!({"id": 99, "result": {}})]);
}

#[test]
fn a_legacy_client_is_asked_in_the_middle_of_a_call() {
    let open = legacy(1, "initialize", r#""capabilities":{"elicitation":{}}"#);
    let ask = legacy(2, "tools/call", &call("ask_name", "{}"));
    let written = SharedOutput::default();
    let mut demo = Demo::new(Box::new(written.clone()), ".".as_ref());
    demo.take(open.as_bytes().into());
    demo.take(ask.as_bytes().into());
    written.wait_for("elicitation/create");
    let answer =
        r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"Ada"}}}"#;
    demo.take(answer.as_bytes().into());
    demo.finish(Duration::from_secs(10));
    let written = written.0.0.lock();
    let last = written.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap();
    assert!(is_part(&text(2, "Hello, Ada!"), &json_of(last)));
}

#[test]
fn a_question_ends_with_the_input() {
    let open = legacy(1, "initialize", r#""capabilities":{"elicitation":{}}"#);
    let ask = legacy(2, "tools/call", &call("ask_name", "{}"));
    let last = talk(&[&open, &ask]).pop().unwrap();
    assert!(is_part(&text(2, "Hello, whoever you are!"), &last), "{last}");
}

#[test]
fn a_modern_client_is_asked_by_the_answer() {
    let ask = modern(1, "tools/call", &call("ask_name", "{}"));
    let first = talk(&[&ask]).pop().unwrap()["result"].take();
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(first["inputRequests"]["name"]["method"], "elicitation/create");
    let retry = |response: &str, state: &Value| {
        let responses = format!(r#","inputResponses":{response},"requestState":{state}"#);
        modern(2, "tools/call", &(call("ask_name", "{}") + &responses))
    };
    let state = &first["requestState"];
    let accept = r#"{"name":{"action":"accept","content":{"name":"Ada"}},"other":1}"#;
    check(&[&retry(accept, state)], &[text(2, "Hello, Ada!")]);
    let decline = r#"{"name":{"action":"decline"}}"#;
    check(&[&retry(decline, state)], &[text(2, "Hello, whoever you are!")]);
    let again = json!({"id": 2, "result": {"resultType": "input_required"}});
    for incomplete in ["{}", r#"{"name":{"action":"accept","content":{"name":" "}}}"#] {
        check(&[&retry(incomplete, state)], std::slice::from_ref(&again));
    }
    let forged = retry(accept, &"forged".into());
    check(&[&forged], &[json!({"id": 2, "error": {"code": -32602}})]);
}

#[test]
fn a_client_that_cannot_be_asked_is_told_what_to_do() {
    let ask = call("ask_name", "{}");
    let deaf = modern(1, "tools/call", &ask).replace("elicitation", "other");
    for line in [deaf, legacy(1, "tools/call", &ask)] {
        let answer = talk(&[&line]).pop().unwrap();
        assert_eq!(answer["result"]["isError"], true);
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("`greet`"));
    }
}

#[test]
fn a_listener_is_acknowledged_and_released_at_the_end() {
    let id = json!({"io.modelcontextprotocol/subscriptionId": 1});
    let acknowledged = json!({
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": id, "notifications": {}},
    });
    let end = json!({"id": 1, "result": {"resultType": "complete", "_meta": id}});
    let listen = modern(1, "subscriptions/listen", r#""notifications":{}"#);
    check(&[&listen], &[acknowledged.clone(), end]);
    let cancel = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
    check(&[&listen, cancel], &[acknowledged]);
}

#[test]
fn prompts_and_resources_are_given_or_refused() {
    let tour = legacy(1, "prompts/get", r#""name":"tour","arguments":{"name":"Ada"}"#);
    let message = &talk(&[&tour])[0]["result"]["messages"][0];
    assert!(message["content"]["text"].as_str().unwrap().contains("Ada"));
    let none = legacy(1, "prompts/get", r#""name":"x""#);
    check(&[&none], &[json!({"error": {"code": -32602}})]);
    let missing = r#""uri":"demo://x""#;
    let refused = |code: i32| json!({"error": {"code": code, "data": {"uri": "demo://x"}}});
    check(&[&legacy(1, "resources/read", missing)], &[refused(-32002)]);
    check(&[&modern(1, "resources/read", missing)], &[refused(-32602)]);
}

#[test]
fn a_report_is_a_file_in_the_work_directory() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = r#"{"title":"../四半期 <Q1>","lines":["a & b","=1+1"],"format":"FORMAT"}"#;
    let contents = [
        ("md", "# ../四半期 <Q1>\n\n- a & b\n- =1+1\n".to_owned()),
        ("csv", "\u{feff}\"number\",\"text\"\r\n1,\"a & b\"\r\n2,\"'=1+1\"\r\n".to_owned()),
    ];
    for (format, content) in contents {
        let make = call("make_report", &arguments.replace("FORMAT", format));
        let make = legacy(1, "tools/call", &make);
        let answer = &talk_in(dir.path(), &[&make, &make])[1]["result"];
        for name in [format!("四半期-Q1.{format}"), format!("四半期-Q1-2.{format}")] {
            let path = dir.path().join(&name);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "{answer}");
        }
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("四半期-Q1-2.{format}")) && text.contains("bytes"));
    }
    let html = call("make_report", &arguments.replace("FORMAT", "html"));
    talk_in(dir.path(), &[&legacy(1, "tools/call", &html)]);
    let html = std::fs::read_to_string(dir.path().join("四半期-Q1.html")).unwrap();
    assert!(html.contains("<h1>../四半期 &lt;Q1&gt;</h1>") && html.contains("a &amp; b"));
}

#[test]
fn wrong_input_is_told_with_what_would_be_right() {
    let cases = [
        ("greet", "{}", "`name`"),
        ("greet", r#"{"name":7}"#, "`name`"),
        ("greet", r#"{"name":""}"#, "`name`"),
        ("greet", r#"{"nme":"Ada","name":"Ada"}"#, "no argument `nme`"),
        ("greet", "[]", "object"),
        ("count", r#"{"to":0}"#, "from 1 to 1000"),
        ("count", r#"{"to":1.5}"#, "from 1 to 1000"),
        ("roll_dice", r#"{"sides":1}"#, "from 2 to 1000"),
        ("slow_echo", r#"{"text":"a","seconds":-1}"#, "from 0 to 300"),
        ("make_report", r#"{"title":"a"}"#, "`lines`"),
        ("make_report", r#"{"title":"a","lines":[1]}"#, "`lines`"),
        ("make_report", r#"{"title":"a","lines":[],"format":"pdf"}"#, "`html`"),
    ];
    for (tool, arguments, expected) in cases {
        let answer = &talk(&[&legacy(1, "tools/call", &call(tool, arguments))])[0];
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let is_error = answer["result"]["isError"] == true;
        assert!(is_error && text.contains(expected), "{tool} {arguments}: {answer}");
    }
}

#[test]
fn dice_have_as_many_sides_as_asked_for() {
    let roll = legacy(1, "tools/call", &call("roll_dice", r#"{"sides":4,"times":100}"#));
    let data = &talk(&[&roll])[0]["result"]["structuredContent"];
    let rolls: Vec<_> = data["rolls"].as_array().unwrap().iter().flat_map(Value::as_u64).collect();
    assert_eq!(rolls.len(), 100);
    assert_eq!((rolls.iter().min(), rolls.iter().max()), (Some(&1), Some(&4)));
    assert_eq!(data["total"], rolls.iter().sum::<u64>());
}

#[test]
fn every_listed_tool_can_be_called() {
    for tool in tools::list("tools")["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let answer = &talk(&[&legacy(1, "tools/call", &call(name, r#"{"?":1}"#))])[0];
        assert_eq!(answer["result"]["isError"], true, "{name}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
    }
}

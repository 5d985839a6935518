//! What clients are told of a server: its own instructions, the operator's, and only the tools they may
//! use.

use pontoon_tests::client::{Legacy, Modern, Speaker};
use pontoon_tests::rig::Server;
use serde_json::{Value, json};

use crate::{fixture_of, rig, rude};

const OWN: &str = "A server for tests. Nothing it says is true.";

/// Starts a server of each era, and expects that clients of both are told this.
fn check(change: impl Fn(Server) -> Server, expected: &str) {
    for era in ["both", "legacy", "modern"] {
        for mode in ["stateless", "stateful"] {
            let rig = rig([change(fixture_of(era, mode))]);
            let legacy = Legacy::open(&rig.endpoint("fixture"));
            assert_eq!(legacy.initialized["instructions"], expected, "{era} {mode}");
            let mut modern = Modern::new(&rig.endpoint("fixture"));
            let discovered = modern.ask(1, "server/discover", json!({}));
            let told = &discovered.answer()["result"]["instructions"];
            assert_eq!(told, expected, "{era} {mode}: {}", discovered.text());
            legacy.end();
            drop(modern);
            rig.stop();
        }
    }
}

#[test]
fn the_operator_adds_to_what_a_server_says() {
    check(|server| server, OWN);
    let guide = "Save before you \"answer\".\n資料";
    check(|server| server.with("usage_guide", guide), &format!("{OWN}\n\n{guide}"));
    let both =
        |server: Server| server.with("usage_guide", guide).with("post_instruction", "Be kind.");
    check(both, &format!("{OWN}\n\n{guide}\n\nBe kind."));
}

#[test]
fn the_operator_replaces_what_a_server_says() {
    let replaced = |server: Server| server.with("instructions", "Mine.");
    check(replaced, "Mine.");
    check(|server| replaced(server).with("post_instruction", "Be kind."), "Mine.\n\nBe kind.");
}

#[test]
fn nobody_is_told_where_a_server_was_learnt() {
    let tells = |mut server: Server| {
        server.args.push("--tells-directory".to_owned());
        server
    };
    // The folder of the child that told it is gone by then; `.` is wherever the next one works.
    check(tells, &format!("{OWN} It works in .."));
}

/// The names of the tools that a client sees.
fn tools(client: &mut impl Speaker) -> Vec<String> {
    let response = client.ask(1, "tools/list", json!({}));
    let answer = response.answer();
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn expect_hidden(client: &mut impl Speaker, what: &str) {
    let names = tools(client);
    assert!(names.iter().any(|name| name == "pid"), "{what}: {names:?}");
    for hidden in ["echo", "crash"] {
        assert!(!names.iter().any(|name| name == hidden), "{what}: {names:?}");
        let refused = client.call(2, hidden, json!({"text": "x"}));
        assert_eq!(refused.error_code(), Some(-32602), "{what}: {}", refused.text());
        assert!(refused.error_text().contains(&format!("no tool \"{hidden}\"")), "{what}");
    }
    let open = client.call(3, "pid", json!({}));
    assert!(open.tool_text().is_some(), "{what}: {}", open.text());
}

#[test]
fn a_tool_that_is_switched_off_is_neither_seen_nor_called() {
    for key in ["disabledTools", "disabled_tools"] {
        for era in ["legacy", "modern"] {
            for mode in ["stateless", "stateful"] {
                let disabled: Value = json!(["echo", "crash"]);
                let rig = rig([fixture_of(era, mode).with(key, disabled)]);
                let what = format!("{key} {era} {mode}");
                let mut legacy = Legacy::open(&rig.endpoint("fixture"));
                expect_hidden(&mut legacy, &what);
                let mut modern = Modern::new(&rig.endpoint("fixture"));
                expect_hidden(&mut modern, &what);
                legacy.end();
                drop(modern);
                rig.stop();
            }
        }
    }
}

#[test]
fn schemas_are_valid_when_a_childs_own_list_is_told() {
    let mut server = rude("odd-schemas", "stateful");
    server.args.extend(["--how", "plays"].map(str::to_owned));
    let rig = rig([server]);
    let mut legacy = Legacy::open(&rig.endpoint("rude"));
    let changed = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}";
    let played = legacy.call(1, "play", json!({"steps": [changed]}));
    assert_eq!(played.tool_text().as_deref(), Some("played"), "{}", played.text());
    let listed = legacy.ask(2, "tools/list", json!({}));
    let answer = listed.answer();
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5, "its own list: {answer}");
    for tool in tools {
        assert!(jsonschema::draft202012::meta::is_valid(&tool["inputSchema"]), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    legacy.end();
    rig.stop();
}

#[test]
fn a_tool_that_is_switched_off_stays_so_when_a_childs_own_list_is_told() {
    let rig =
        rig([fixture_of("legacy", "stateful").with("disabledTools", json!(["echo", "crash"]))]);
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let changed = legacy.call(1, "test_trigger_tool_change", json!({}));
    assert!(changed.answer().get("result").is_some(), "{}", changed.text());
    let names = tools(&mut legacy);
    assert!(names.iter().any(|name| name == "test_extra_tool"), "its own list: {names:?}");
    expect_hidden(&mut legacy, "changed");
    legacy.end();
    rig.stop();
}

//! The application of seed 003 in the real command: with `pontoon connect` it works, and straight it does not.
//!
//! Claude Code speaks to a WebSocket by itself (`type: "ws"`), so the same application is tried both ways, and by a
//! bridge that repairs nothing. The model refuses tools whose schema is not valid, as the real one does.

use pontoon_tests::claude::{Claude, NEWEST};
use pontoon_tests::seed_app::{Faults, SeedApp, TOOLS};
use serde_json::{Value, json};

use super::{in_every_version, message, text};
use crate::binaries;

/// A conversation in which the model uses three of the tools.
fn script() -> Value {
    json!([
        [{"id": "log", "tool": "mcp__mine__get_console_log", "input": {"lines": 10}}],
        [{"id": "patches", "tool": "mcp__mine__list_active_patches", "input": {}}],
        [{"id": "add", "tool": "mcp__mine__add_max_object",
          "input": {"patch_id": "p", "obj_type": "cycle~", "position": [10, 20.5]}}],
        "That is all.",
    ])
}

/// The tools of the application among these names.
fn of_app(names: &[String]) -> Vec<&str> {
    names.iter().filter_map(|name| name.strip_prefix("mcp__mine__")).collect()
}

/// All tools were offered to the model, and its calls were carried out.
#[track_caller]
fn works(claude: &Claude, app: &SeedApp, messages: &[Value]) {
    let start = message(messages, "system");
    assert_eq!(start["mcp_servers"][0]["status"], "connected", "{start}");
    let api = claude.api();
    let mut offered =
        of_app(&api.offered_tools()).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut all = TOOLS.map(str::to_owned);
    offered.sort_unstable();
    all.sort_unstable();
    assert_eq!(offered, all);
    assert_eq!(message(messages, "result")["result"], "That is all.", "{messages:#?}");
    let said = |id| serde_json::from_str::<Value>(text(&api.tool_result(id))).unwrap();
    assert_eq!(said("log")["lines"].as_array().map(Vec::len), Some(10));
    assert_eq!(said("patches"), json!({"count": 0, "patches": []}));
    assert_eq!(said("add")["position"], json!([10, 20.5]));
    assert_eq!(app.calls().len(), 3, "each once");
}

fn straight(app: &SeedApp) -> Value {
    json!({"type": "ws", "url": app.url(), "alwaysLoad": true})
}

fn by_plain_bridge(app: &SeedApp) -> Value {
    json!({"command": env!("CARGO_BIN_EXE_plain-bridge"), "args": [app.url()], "alwaysLoad": true})
}

fn by_bridge(app: &SeedApp) -> Value {
    // Without `alwaysLoad` newer versions tell the model names only, and it asks for the rest.
    json!({"command": binaries().pontoon, "args": ["connect", app.url()], "alwaysLoad": true})
}

in_every_version!(
    all_tools_of_the_application_are_offered_and_work_by_the_bridge,
    straight_the_mended_application_works,
    straight_the_application_has_no_tool,
    straight_null_for_properties_costs_all_tools,
    straight_a_list_of_words_for_a_schema_is_refused_by_the_model,
    straight_bare_results_are_empty,
    straight_answers_to_notifications_and_one_version_do_no_harm
);

fn all_tools_of_the_application_are_offered_and_work_by_the_bridge(version: &str) {
    let Some(claude) = Claude::of_version(version, &script()) else { return };
    let app = SeedApp::start(Faults::ALL);
    let messages = claude.run(&by_bridge(&app));
    works(&claude, &app, &messages);
    assert_eq!(claude.api().refused(), Vec::<String>::new());
    claude.leaves_no_process();
}

/// That the other tests straight to the application fail is not for want of a way to it.
fn straight_the_mended_application_works(version: &str) {
    let Some(claude) = Claude::of_version(version, &script()) else { return };
    let app = SeedApp::start(Faults::NONE);
    let messages = claude.run(&straight(&app));
    works(&claude, &app, &messages);
}

/// The command says that it is connected, and has none of the eleven tools.
#[track_caller]
fn has_no_tool(version: &str, faults: Faults, way: fn(&SeedApp) -> Value) {
    let Some(claude) = Claude::of_version(version, &script()) else { return };
    let app = SeedApp::start(faults);
    let messages = claude.run(&way(&app));
    let start = message(&messages, "system");
    assert_eq!(start["mcp_servers"][0]["status"], "connected", "{start}");
    let api = claude.api();
    assert_eq!(of_app(&api.offered_tools()), Vec::<&str>::new());
    for id in ["log", "patches", "add"] {
        let result = api.tool_result(id);
        assert!(text(&result).contains("No such tool available"), "{result}");
    }
    assert_eq!(app.calls(), Vec::<Value>::new());
}

fn straight_the_application_has_no_tool(version: &str) {
    has_no_tool(version, Faults::ALL, straight);
}

fn straight_null_for_properties_costs_all_tools(version: &str) {
    has_no_tool(version, Faults { null_properties: true, ..Faults::NONE }, straight);
}

/// The request of the model is refused, with all tools in it. The newest version then asks again, and tells the model
/// of no arguments of that tool.
fn straight_a_list_of_words_for_a_schema_is_refused_by_the_model(version: &str) {
    let Some(claude) = Claude::of_version(version, &script()) else { return };
    let app = SeedApp::start(Faults { flat_items: true, ..Faults::NONE });
    let conversation = claude.start(&straight(&app));
    if version == NEWEST {
        let messages = conversation.finish();
        assert_eq!(message(&messages, "result")["result"], "That is all.");
    } else {
        let result = message(&conversation.fail(), "result").clone();
        let said = result["result"].as_str().unwrap();
        assert!(said.starts_with("API Error: 400") && said.contains("draft 2020-12"), "{said}");
        assert_eq!(app.calls(), Vec::<Value>::new());
    }
    let api = claude.api();
    let requests = api.requests();
    let tools = |request: &Value| request["tools"].as_array().unwrap().clone();
    let is_it = |tool: &Value| tool["name"] == "mcp__mine__add_max_object";
    let place = tools(&requests[0]).iter().position(is_it).unwrap();
    let expected = format!(
        "tools.{place}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
    );
    let refused = api.refused();
    assert!(
        !refused.is_empty() && refused.iter().all(|it| it.starts_with(&expected)),
        "{refused:?}"
    );
    if version == NEWEST {
        let last = tools(requests.last().unwrap());
        let schema = &last.iter().find(|tool| is_it(tool)).unwrap()["input_schema"];
        assert_eq!(*schema, json!({"type": "object"}), "its arguments are gone");
    }
}

fn straight_bare_results_are_empty(version: &str) {
    let Some(claude) = Claude::of_version(version, &script()) else { return };
    let app = SeedApp::start(Faults { bare_results: true, ..Faults::NONE });
    claude.run(&straight(&app));
    assert_eq!(app.calls().len(), 3);
    for id in ["log", "patches", "add"] {
        let result = claude.api().tool_result(id);
        let content = &result["content"];
        let is_empty = *content == json!([])
            || content.as_str().is_some_and(|text| text.ends_with("completed with no output)"));
        assert!(is_empty, "{result}");
    }
}

fn straight_answers_to_notifications_and_one_version_do_no_harm(version: &str) {
    let Some(claude) = Claude::of_version(version, &script()) else { return };
    let faults = Faults { answers_notifications: true, fixed_version: true, ..Faults::NONE };
    let app = SeedApp::start(faults);
    let messages = claude.run(&straight(&app));
    works(&claude, &app, &messages);
}

#[test]
fn by_a_bridge_that_repairs_nothing_the_application_has_no_tool() {
    has_no_tool(NEWEST, Faults::ALL, by_plain_bridge);
}

#[test]
fn by_a_bridge_that_repairs_nothing_the_mended_application_works() {
    let Some(claude) = Claude::of_version(NEWEST, &script()) else { return };
    let app = SeedApp::start(Faults::NONE);
    let messages = claude.run(&by_plain_bridge(&app));
    works(&claude, &app, &messages);
    claude.leaves_no_process();
}

/// A call of more bytes than the application receives at once.
fn long_call() -> Value {
    json!([
        [{"id": "long", "tool": "mcp__mine__get_patch_info", "input": {"patch_id": "{{blob:20000}}"}}],
        [{"id": "short", "tool": "mcp__mine__get_console_log", "input": {"lines": 3}}],
        "That is all.",
    ])
}

#[test]
fn a_call_that_is_too_long_for_the_application_is_told_so_by_the_bridge() {
    let Some(claude) = Claude::of_version(NEWEST, &long_call()) else { return };
    let app = SeedApp::start(Faults::ALL);
    claude.run(&by_bridge(&app));
    let long = claude.api().tool_result("long");
    let said = text(&long);
    assert!(
        long["is_error"] == true && said.contains("was not read") && said.contains("Parse error"),
        "{long}"
    );
    assert!(text(&claude.api().tool_result("short")).contains("console line 3"));
    assert_eq!(app.calls().len(), 1);
    claude.leaves_no_process();
}

#[test]
fn straight_a_call_that_is_too_long_for_the_application_hangs() {
    let Some(claude) = Claude::of_version(NEWEST, &long_call()) else { return };
    let app = SeedApp::start(Faults::NONE);
    let mut server = straight(&app);
    // Else it would wait for a day.
    server["timeout"] = json!(3000);
    claude.run(&server);
    let long = claude.api().tool_result("long");
    assert!(long["is_error"] == true && text(&long).contains("timed out"), "{long}");
}

//! The application of seed 003 with all its faults, as a client of `pontoon connect` sees it.

use pontoon_tests::rig::wait_until;
use pontoon_tests::seed_app::{Faults, SeedApp, TOOLS};
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::{Home, SOON, text, tools, unasked};

/// The tools, whose schemas are all valid.
#[track_caller]
fn check_schemas(client: &mut StdioServer) {
    let listed = client.ask("schemas", "tools/list", &json!({}));
    let listed = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(listed.len(), TOOLS.len());
    for tool in listed {
        let schema = &tool["inputSchema"];
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{tool}");
    }
    let schema =
        |name: &str| &listed.iter().find(|tool| tool["name"] == name).unwrap()["inputSchema"];
    let items = json!({"type": "number"});
    assert_eq!(schema("add_max_object")["properties"]["position"]["items"], items);
    assert_eq!(schema("list_active_patches")["properties"], json!({}));
}

fn said(result: &Value) -> Value {
    serde_json::from_str(text(result)).unwrap_or_else(|error| panic!("{error}: {result}"))
}

#[test]
fn the_application_of_the_seed_works_with_all_its_faults() {
    for spread_messages in [false, true] {
        let home = Home::new();
        let app = SeedApp::start(Faults { spread_messages, ..Faults::ALL });
        let mut client = home.client(&app.url(), &[]);
        assert_eq!(tools(&mut client, "tools"), TOOLS);
        check_schemas(&mut client);
        let log = client.call(1, "get_console_log", json!({"lines": 10}));
        assert_eq!(said(&log)["lines"].as_array().map(Vec::len), Some(10), "{log}");
        let patches = client.call(2, "list_active_patches", json!({}));
        assert_eq!(said(&patches), json!({"count": 0, "patches": []}));
        let place = json!({"patch_id": "p", "obj_type": "cycle~", "position": [10, 20.5]});
        let added = client.call(3, "add_max_object", place);
        assert_eq!(said(&added)["position"], json!([10, 20.5]), "{added}");
        assert_eq!(app.calls().len(), 3);
        assert_eq!(unasked(&mut client), Vec::<Value>::new(), "answers, and nothing else");
        home.finish(client);
    }
}

#[test]
fn tools_are_shown_as_their_application_has_them_where_that_is_wanted() {
    let app = SeedApp::start(Faults::ALL);
    let schema = |words: &[&str]| {
        let home = Home::new();
        let mut client = home.client(&app.url(), words);
        let listed = client.ask("schemas", "tools/list", &json!({}));
        let listed = listed["result"]["tools"].as_array().unwrap();
        let tool = listed.iter().find(|tool| tool["name"] == "add_max_object").unwrap();
        let schema = tool["inputSchema"].clone();
        home.finish(client);
        schema
    };
    let items = |schema: &Value| schema["properties"]["position"]["items"].clone();
    assert_eq!(items(&schema(&["--profile", "none"])), json!({"type": "number"}));
    assert_eq!(items(&schema(&["--heal", "S005=off"])), json!(["type", "number"]));
    assert_eq!(items(&schema(&["--heal", "off"])), json!(["type", "number"]));
}

#[test]
fn a_call_in_which_the_application_answers_no_ping_keeps_its_connection() {
    let home = Home::new();
    let app = SeedApp::start(Faults::ALL);
    let mut client = home.client(&app.url(), &["--ping-after", "300ms"]);
    tools(&mut client, "tools");
    wait_until("it answers pings", SOON, || app.pings() > 0);
    let accepted = app.accepted();
    // Six pings are left unanswered, and without a call it would be given up after three.
    let objects = client.call(1, "get_objects_in_patch", json!({"patch_id": "p", "ms": 2000}));
    assert_eq!(said(&objects), json!({"objects": []}));
    let log = client.call(2, "get_console_log", json!({"lines": 1}));
    assert_eq!(said(&log)["lines"].as_array().map(Vec::len), Some(1), "{log}");
    assert_eq!((app.accepted(), app.calls().len()), (accepted, 2));
    home.finish(client);
}

#[test]
fn what_the_application_gets_wrong_is_logged_once_for_each_kind() {
    let home = Home::new();
    let app = SeedApp::start(Faults::ALL);
    let mut command = home.command(&app.url(), &[]);
    let told = std::fs::File::create(home.0.path().join("told")).unwrap();
    command.env("DEBUG", "1").stderr(told);
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    tools(&mut client, "tools");
    for id in 0..3 {
        client.call(id, "list_active_patches", json!({}));
    }
    home.finish(client);
    let told = std::fs::read_to_string(home.0.path().join("told")).unwrap();
    for (code, place) in [
        ("H08", ""),
        ("H17", ""),
        ("S003", "/inputSchema/properties"),
        ("S005", "/inputSchema/properties/position/items"),
    ] {
        let lines: Vec<_> = told.lines().filter(|line| line.contains(code)).collect();
        assert!(lines.len() == 1 && lines[0].contains(place), "{code}: {lines:?} in\n{told}");
    }
}

#[test]
fn tools_that_only_look_other_than_before_are_no_change() {
    let home = Home::new();
    let app = SeedApp::start(Faults::ALL);
    let mut client = home.client(&app.url(), &[]);
    assert_eq!(tools(&mut client, "first"), TOOLS);
    home.finish(client);
    // What is kept is as the application wrote it; what is shown is the same as what is learnt anew.
    let mut client = home.client(&app.url(), &[]);
    check_schemas(&mut client);
    client.call(1, "list_active_patches", json!({}));
    assert_eq!(client.unheard(), Vec::<Value>::new(), "no word of a change");
    home.finish(client);
}

#[test]
fn a_call_that_is_too_long_for_the_application_is_answered_once_and_the_next_ones_work() {
    let home = Home::new();
    let app = SeedApp::start(Faults::ALL);
    let mut client = home.client(&app.url(), &[]);
    tools(&mut client, "tools");
    for round in 0..5 {
        let long = json!({"patch_id": "x".repeat(20_000)});
        client.send_call(format!("long {round}"), "get_patch_info", long);
        client.send_call(format!("short {round}"), "get_console_log", json!({"lines": round + 1}));
        let refused = client.answer(format!("long {round}"));
        let why = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
        assert!(why.contains("was not read") && why.contains("send less at once"), "{why}");
        let log = client.answer(format!("short {round}"));
        let lines = said(&log["result"])["lines"].as_array().map(Vec::len);
        assert_eq!(lines, Some(round + 1), "{log}");
    }
    let calls = app.calls();
    assert!(calls.len() == 5 && calls.iter().all(|call| call["name"] == "get_console_log"));
    assert_eq!(unasked(&mut client), Vec::<Value>::new(), "each is answered once");
    home.finish(client);
}

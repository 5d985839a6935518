//! A client and an application of either era.

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::{Home, text, tools};

fn modern(params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

fn call_modern(client: &mut StdioServer, id: u64, tool: &str, arguments: &Value) -> Value {
    let params = modern(&json!({"name": tool, "arguments": arguments}));
    client.ask(id, "tools/call", &params)["result"].take()
}

#[test]
fn clients_of_both_eras_use_applications_of_both_eras() {
    let (home, deeds) = (Home::new(), Deeds::default());
    for is_modern in [false, true] {
        let manner = Manner { is_modern, ..Manner::default() };
        let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
        let mut client = home.client(&app.url(), &[]);
        assert_eq!(tools(&mut client, "legacy")[0], "echo", "{is_modern}");
        let result = client.call(1, "echo", json!({"text": "legacy"}));
        assert_eq!((text(&result), &result["resultType"]), ("legacy", &Value::Null), "{is_modern}");
        home.finish(client);
        let mut client = home.connect(&app.url(), &[]);
        let found = client.ask(1, "server/discover", &modern(&json!({})));
        assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{found}");
        let listed = client.ask(2, "tools/list", &modern(&json!({})));
        assert_eq!(listed["result"]["tools"][0]["name"], "echo", "{is_modern}: {listed}");
        let result = call_modern(&mut client, 3, "echo", &json!({"text": "modern"}));
        assert_eq!((text(&result), &result["resultType"]), ("modern", &json!("complete")));
        home.finish(client);
    }
}

#[test]
fn a_modern_client_cancels_by_the_id_of_its_call() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut client = home.connect(&app.url(), &[]);
    client.send(
        "hangs",
        "tools/call",
        &modern(&json!({"name": "silent", "arguments": {"text": "s"}})),
    );
    client.notify("notifications/cancelled", &json!({"requestId": "hangs"}));
    // Its place is free again.
    let result = call_modern(&mut client, 2, "echo", &json!({"text": "next"}));
    assert_eq!(text(&result), "next");
    assert_eq!(client.unheard(), Vec::<Value>::new());
    home.finish(client);
}

#[test]
fn a_modern_client_hears_at_its_subscription_that_tools_changed() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let place = app.place();
    let mut client = home.connect(&app.url(), &[]);
    client.ask(1, "tools/list", &modern(&json!({})));
    let filter = json!({"notifications": {"toolsListChanged": true}});
    client.send("heard", "subscriptions/listen", &modern(&filter));
    client
        .wait_for("acknowledged", |it| it["method"] == "notifications/subscriptions/acknowledged");
    app.close();
    let more_tools = vec!["new".to_owned()];
    let _app = LiveApp::start(&place, Manner { more_tools, ..Manner::default() }, &deeds);
    client.wait_for("changed", |it| it["method"] == "notifications/tools/list_changed");
    home.finish(client);
}

#[test]
fn a_request_before_the_session_is_open_is_refused_and_a_ping_is_answered() {
    let home = Home::new();
    let mut client = home.connect("ws://127.0.0.1:1", &[]);
    assert_eq!(client.ask(1, "ping", &json!({}))["result"], json!({}));
    let refused = client.ask(2, "tools/list", &json!({}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("`initialize`"), "{refused}");
    client.initialize();
    assert!(tools(&mut client, "now").is_empty());
    let twice =
        client.ask(3, "initialize", &json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert!(twice["error"]["message"].as_str().unwrap().contains("open already"), "{twice}");
    let described = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}});
    let unknown = client.ask(4, "tools/list", &described);
    assert_eq!(unknown["error"]["code"], -32022, "{unknown}");
    home.finish(client);
}

#[test]
fn a_call_that_waits_for_a_person_hears_that_its_application_was_lost_meanwhile() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut client = home.connect(&app.url(), &[]);
    let mut params = modern(&json!({"name": "ask", "arguments": {"text": "asked"}}));
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {"form": {}}});
    let asked = client.ask(1, "tools/call", &params)["result"].take();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    app.drop_connections();
    // It is there again by the time the person has answered.
    assert_eq!(text(&call_modern(&mut client, 2, "echo", &json!({"text": "x"}))), "x");
    params["requestState"] = asked["requestState"].clone();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    params["inputResponses"] = json!({key: {"action": "accept", "content": {}}});
    let lost = client.ask(3, "tools/call", &params)["result"].take();
    assert_eq!(lost["_meta"]["pontoon/outcome"], "unknown", "{lost}");
    assert_eq!(deeds.count("asked"), 1, "it is not made again");
    home.finish(client);
}

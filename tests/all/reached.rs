//! Servers that run already, behind `serve`: an application at a `url`, a program at a `socket`. One connection is for all
//! clients, and they come and go.

use std::time::Duration;

use pontoon_host::Session;
use pontoon_tests::client::{Client, ERAS, Era, Legacy, Response, Speaker};
use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::{Rig, Server, wait_until};
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use crate::journal::calls;
use crate::{binaries, host, plan, rig};

const SOON: Duration = Duration::from_secs(30);

/// An application with a WebSocket, and a bridge that serves it.
fn served(manner: Manner, deeds: &Deeds) -> (LiveApp, Rig) {
    let app = LiveApp::start(&Place::WebSocket(0), manner, deeds);
    let rig = rig([at(&app)]);
    rig.wait_for_state("max", "ready");
    (app, rig)
}

fn at(app: &LiveApp) -> Server {
    Server::reached("max", "url", &app.url())
}

fn client(rig: &Rig, era: Era) -> Client {
    Client::new(era, &rig.endpoint("max"))
}

fn echo(client: &mut Client, id: u64, text: &str) -> Response {
    client.call(id, "echo", json!({"text": text}))
}

fn tools(client: &mut Client) -> Vec<String> {
    let answer = client.ask(1, "tools/list", json!({})).answer();
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// What became of a call, as its result says.
fn outcome(response: &Response) -> Value {
    response.answer()["result"]["_meta"]["pontoon/outcome"].clone()
}

#[test]
fn clients_of_both_eras_share_one_connection_and_have_their_own_answers() {
    for is_modern in [false, true] {
        let deeds = Deeds::default();
        let (app, rig) = served(Manner { is_modern, ..Manner::default() }, &deeds);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let rig = &rig;
                scope.spawn(move || {
                    let mut client = client(rig, ERAS[number % 2]);
                    for id in 0..10 {
                        let text = format!("{number} says {id}");
                        assert_eq!(echo(&mut client, id, &text).tool_text(), Some(text));
                    }
                    client.end();
                });
            }
        });
        assert_eq!(app.accepted() - app.sent_away(), if is_modern { 2 } else { 1 }, "one a try");
        assert_eq!(deeds.repeated(), Vec::<String>::new());
        rig.stop();
        wait_until("it was closed in order", SOON, || app.closed() >= 1);
        app.close();
    }
}

#[test]
fn an_era_is_told_of_an_application_that_was_seen() {
    let deeds = Deeds::default();
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let never = Server::reached("never", "url", "ws://127.0.0.1:1");
    let rig = rig([at(&app), never]);
    rig.wait_for_state("max", "ready");
    rig.wait_for_state("never", "away");
    wait_until("its tools are known", SOON, || {
        rig.health()["servers"]["max"]["eras"] == json!(["legacy"])
    });
    assert_eq!(rig.health()["servers"]["never"]["eras"], json!([]));
    rig.stop();
    app.close();
}

#[test]
fn an_application_that_is_away_keeps_its_tools_and_a_call_waits_for_it_or_was_not_made() {
    let deeds = Deeds::default();
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let place = app.place();
    let rig = rig([at(&app).with("connect_wait", "300ms")]);
    rig.wait_for_state("max", "ready");
    app.close();
    rig.wait_for_state("max", "away");
    let health = rig.health();
    assert_eq!(health["status"], "degraded", "{health}");
    assert_eq!(health["reasons"][0], "the application `max` is away");
    assert_eq!(health["servers"]["max"]["isolation"], "none");
    assert_eq!(rig.get("/ready").status(), 200);
    for era in ERAS {
        let mut client = client(&rig, era);
        assert_eq!(tools(&mut client)[..2], ["echo", "read"]);
        let response = echo(&mut client, 2, "early");
        assert_eq!(outcome(&response), "not made", "{}", response.text());
        let told = response.text();
        assert!(told.contains("application `max` cannot be reached"), "{told}");
        assert!(told.contains("start the application") && !told.contains("ws://"), "{told}");
        client.end();
    }
    rig.write_config(&[Server::reached("max", "url", &url_of(&place)).with("connect_wait", "60s")]);
    rig.signal(rustix::process::Signal::HUP);
    wait_until("it is taken over", SOON, || rig.log().contains("configuration taken over"));
    let waiting = client(&rig, Era::Modern).send_call(3, "echo", json!({"text": "late"}));
    let app = LiveApp::start(&place, Manner::default(), &deeds);
    let response = waiting.begin().unwrap().finish().unwrap().0;
    assert_eq!(response.tool_text().as_deref(), Some("late"), "{}", response.text());
    assert_eq!((deeds.count("early"), deeds.count("late")), (0, 1));
    rig.stop();
    app.close();
}

fn url_of(place: &Place) -> String {
    match place {
        Place::WebSocket(port) => format!("ws://127.0.0.1:{port}"),
        _ => unreachable!("it was made so"),
    }
}

#[test]
fn a_call_under_way_when_it_is_lost_says_that_its_outcome_is_unknown_and_is_made_once() {
    let deeds = Deeds::default();
    let (app, rig) = served(Manner::default(), &deeds);
    for (era, text) in ERAS.into_iter().zip(["one", "two"]) {
        let mut client = client(&rig, era);
        let response = client.call(1, "die", json!({"text": text}));
        assert_eq!(outcome(&response), "unknown", "{}", response.text());
        assert_eq!(deeds.count(text), 1);
        let again = format!("{text} again");
        let response = client.call(2, "die_once", json!({"text": again}));
        assert_eq!(response.tool_text(), Some(again.clone()), "it may be made twice");
        assert_eq!(deeds.count(&again), 2);
        client.end();
    }
    let in_journal: Vec<_> = calls(&rig, 4).into_iter().map(|call| call.tool).collect();
    assert_eq!(in_journal, ["die", "die_once", "die", "die_once"]);
    rig.stop();
    app.close();
}

#[test]
fn one_that_leaves_the_configuration_is_let_go_and_one_that_comes_is_reached() {
    let deeds = Deeds::default();
    let (first, rig) = served(Manner::default(), &deeds);
    let second = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut before = client(&rig, Era::Legacy);
    assert_eq!(echo(&mut before, 1, "first").tool_text().as_deref(), Some("first"));
    rig.write_config(&[at(&second)]);
    rig.signal(rustix::process::Signal::HUP);
    wait_until("the first is let go", SOON, || first.closed() == 1);
    first.close();
    let answer = echo(&mut before, 2, "second");
    assert_eq!(answer.tool_text().as_deref(), Some("second"), "{}", answer.text());
    before.end();
    rig.stop();
    second.close();
}

#[test]
fn a_session_hears_when_the_application_has_other_tools() {
    let deeds = Deeds::default();
    let (app, rig) = served(Manner::default(), &deeds);
    let mut legacy = Legacy::open(&rig.endpoint("max"));
    let tools = &legacy.initialized["capabilities"]["tools"];
    assert_eq!(*tools, json!({"listChanged": true}));
    let mut stream = legacy.listen(None);
    let grown = legacy.call(1, "grow", json!({"text": "new_tool"}));
    assert!(grown.tool_text().is_some(), "{}", grown.text());
    let heard = loop {
        let message = stream.next_message().unwrap().expect("the stream goes on");
        if message["method"] == "notifications/tools/list_changed" {
            break message;
        }
    };
    assert_eq!(heard["id"], Value::Null);
    let listed = legacy.ask(2, "tools/list", json!({})).text();
    assert!(listed.contains("new_tool"), "{listed}");
    drop(stream);
    legacy.end();
    rig.stop();
    app.close();
}

#[test]
fn a_session_hears_of_other_tools_also_after_a_reload() {
    let deeds = Deeds::default();
    let (app, rig) = served(Manner::default(), &deeds);
    let mut legacy = Legacy::open(&rig.endpoint("max"));
    let mut stream = legacy.listen(None);
    rig.write_config(&[at(&app).with("timeout", 77)]);
    rig.signal(rustix::process::Signal::HUP);
    wait_until("it is taken over", SOON, || rig.log().contains("configuration taken over"));
    let grown = legacy.call(1, "grow", json!({"text": "new_tool"}));
    assert!(grown.tool_text().is_some(), "{}", grown.text());
    let method = "notifications/tools/list_changed";
    while stream.next_message().unwrap().expect("the stream goes on")["method"] != method {}
    drop(stream);
    legacy.end();
    rig.stop();
    app.close();
}

#[test]
fn what_the_application_asks_is_asked_of_no_client_and_none_can_subscribe() {
    let deeds = Deeds::default();
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let rig = rig([at(&app).with("timeout", "2s")]);
    rig.wait_for_state("max", "ready");
    let mut legacy = Legacy::open(&rig.endpoint("max"));
    let answer = legacy.ask(1, "resources/subscribe", json!({"uri": "a:b"})).answer();
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    // It asks, gets a refusal, and never answers.
    let response = legacy.call(2, "ask", json!({"text": "x"}));
    assert_eq!(outcome(&response), "unknown", "{}", response.text());
    assert!(!response.text().contains("elicitation/create"), "{}", response.text());
    assert_eq!(rig.health()["servers"]["max"]["heals"]["H22"], 1, "it was refused");
    legacy.end();
    rig.stop();
    app.close();
}

#[test]
fn a_token_is_shown_and_not_logged_and_a_wrong_one_is_told() {
    let deeds = Deeds::default();
    let manner = Manner { token: Some("the-right-token".to_owned()), ..Manner::default() };
    let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
    let with = |token: &str| {
        at(&app).with("headers", json!({"Authorization": format!("Bearer ${{env:{token}}}")}))
    };
    let rig = plan([with("RIGHT")]).variable("RIGHT", "the-right-token").start();
    rig.wait_for_state("max", "ready");
    assert_eq!(echo(&mut client(&rig, Era::Modern), 1, "x").tool_text().as_deref(), Some("x"));
    assert!(!rig.log().contains("the-right-token") && !rig.stderr().contains("the-right-token"));
    rig.stop();
    let rig = plan([with("WRONG")]).variable("WRONG", "the-wrong-token").start();
    rig.wait_for_state("max", "away");
    wait_until("it is told why", SOON, || {
        let error = rig.health()["servers"]["max"]["error"].to_string();
        error.contains("token") && !error.contains("the-wrong-token")
    });
    assert!(!rig.log().contains("the-wrong-token"));
    rig.stop();
    app.close();
}

#[test]
fn calls_wait_for_their_turn_where_the_application_does_one_thing_at_a_time() {
    let deeds = Deeds::default();
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let rig = rig([at(&app).with("max_in_flight", 1)]);
    rig.wait_for_state("max", "ready");
    let open: Vec<_> = (0..5)
        .map(|number| {
            let arguments = json!({"text": format!("turn {number}"), "ms": 50});
            client(&rig, Era::Modern).send_call(number, "wait", arguments)
        })
        .collect();
    for (number, connection) in open.into_iter().enumerate() {
        let response = connection.begin().unwrap().finish().unwrap().0;
        assert!(response.tool_text().is_some(), "{number}: {}", response.text());
    }
    rig.stop();
    app.close();
}

#[test]
fn a_program_at_a_socket_is_served_and_found_again_when_it_is_started_again() {
    let folder = tempfile::Builder::new().prefix("pr").tempdir_in("/tmp").unwrap();
    let place = folder.path().join("my-program");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = || runtime.block_on(async { Session::start_at(&place, &[host::tools()]).unwrap() });
    let session = start();
    let socket = place.join("tools.sock");
    let rig = rig([Server::reached("max", "socket", socket.to_str().unwrap())]);
    rig.wait_for_state("max", "ready");
    for era in ERAS {
        let mut client = client(&rig, era);
        assert_eq!(echo(&mut client, 1, "桟橋").tool_text().as_deref(), Some("桟橋"));
        // Both are at work at once.
        let meeting = [7, 8].map(|id| client.send_call(id, "meet", json!({})));
        for connection in meeting {
            let met = connection.begin().unwrap().finish().unwrap().0;
            assert_eq!(met.tool_text().as_deref(), Some("met"), "{}", met.text());
        }
        client.end();
    }
    runtime.block_on(session.stop());
    rig.wait_for_state("max", "away");
    let session = start();
    let answer = echo(&mut client(&rig, Era::Modern), 2, "again");
    assert_eq!(answer.tool_text().as_deref(), Some("again"), "{}", answer.text());
    rig.stop();
    runtime.block_on(session.stop());
    assert!(!place.exists());
}

#[test]
fn a_shell_lists_and_calls_its_tools_and_hears_when_it_is_away() {
    let deeds = Deeds::default();
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp-servers.json");
    let entry = json!({"url": app.url(), "connect_wait": "300ms"});
    std::fs::write(&file, json!({"mcpServers": {"max": entry}}).to_string()).unwrap();
    let run = |words: &[&str]| run(folder.path(), &file, words);
    let (is_well, said) = run(&["check"]);
    assert!(is_well && said.contains(&app.url()) && said.contains("reached when"), "{said}");
    let (is_well, said) = run(&["tools", "max"]);
    assert!(is_well && said.starts_with("echo\nread\n"), "{said}");
    let (is_well, said) = run(&["call", "max", "echo", "text=hello"]);
    assert!(is_well && said.contains("hello"), "{said}");
    app.close();
    let (is_well, said) = run(&["tools", "max"]);
    assert!(!is_well && said.contains("cannot be reached"), "{said}");
}

/// Runs a command of the bridge with this configuration, and gives whether it was a success and what it said.
#[expect(clippy::disallowed_methods, reason = "a person starts it so, and it ends by itself")]
fn run(home: &std::path::Path, config: &std::path::Path, words: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new(&binaries().pontoon);
    command.args(words).arg("--config").arg(config).env_clear().env("HOME", home);
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn connect_and_serve_have_the_same_words_for_one_application() {
    let deeds = Deeds::default();
    let (app, rig) = served(Manner::default(), &deeds);
    let home = tempfile::Builder::new().prefix("pc").tempdir_in("/tmp").unwrap();
    #[expect(clippy::disallowed_methods, reason = "a client starts the bridge so")]
    let mut command = std::process::Command::new(&binaries().pontoon);
    command.args(["connect", &app.url()]).env_clear().env("HOME", home.path());
    let mut connect = StdioServer::start(&mut command);
    connect.initialize();
    let straight = connect.call(1, "die", json!({"text": "straight"}));
    let over_http = client(&rig, Era::Legacy).call(1, "die", json!({"text": "over http"})).answer();
    let told =
        |result: &Value| (result["isError"].clone(), result["_meta"]["pontoon/outcome"].clone());
    assert_eq!(told(&straight), told(&over_http["result"]));
    assert!(connect.finish().success());
    rig.stop_with_sessions(1);
    app.close();
}

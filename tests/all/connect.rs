//! `pontoon connect`: a client on standard input and output, and an application that comes and goes.

mod carriers;
mod closes;
mod entrance;
mod eras;
mod example;
mod examples;
mod finding;
mod floods;
mod headers;
mod losses;
mod proxy;
mod records;
mod resources;
mod seed;
mod sharing;
mod sizes;
mod soak;
mod status;
mod strangers;
mod tls;
mod token;

use std::process::Command;
use std::time::Duration;

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binaries;

const SOON: Duration = Duration::from_secs(30);

/// A folder for what a bridge keeps, and for its temporary files, of which none may be left.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        // Short enough for the path of a socket.
        let folder = tempfile::Builder::new().prefix("pc").tempdir_in("/tmp").unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        Self(folder)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a client starts the bridge so, and the test ends it"
    )]
    fn command(&self, url: &str, options: &[&str]) -> Command {
        let mut command = Command::new(&binaries().pontoon);
        command.args(["connect", url]).args(options).env_clear();
        command.env("HOME", self.0.path()).env("TMPDIR", self.0.path().join("tmp"));
        command
    }

    /// A bridge to that address, and its client.
    fn connect(&self, url: &str, options: &[&str]) -> StdioServer {
        StdioServer::start(&mut self.command(url, options))
    }

    /// The same, with the conversation opened.
    fn client(&self, url: &str, options: &[&str]) -> StdioServer {
        let mut client = self.connect(url, options);
        let opened = client.initialize();
        assert_eq!(opened["result"]["protocolVersion"], "2025-11-25", "{opened}");
        client
    }

    /// Ends a bridge in order, and sees that nothing of it is left.
    fn finish(&self, bridge: StdioServer) {
        assert!(bridge.finish().success());
        self.is_tidy();
    }

    fn is_tidy(&self) {
        let left: Vec<_> = std::fs::read_dir(self.0.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// What the client got and did not ask for. One that is greeted before the application is there hears that its tools
/// came; that is left out.
fn unasked(client: &mut StdioServer) -> Vec<Value> {
    let mut unasked = client.unheard();
    unasked.retain(|message| message["method"] != "notifications/tools/list_changed");
    unasked
}

/// An application with a WebSocket, at a port of its own.
fn app(deeds: &Deeds) -> LiveApp {
    LiveApp::start(&Place::WebSocket(0), Manner::default(), deeds)
}

/// The names of the tools that a client is told.
fn tools(client: &mut StdioServer, id: &str) -> Vec<String> {
    let answer = client.ask(id, "tools/list", &json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the client is told that tools changed.
fn tools_changed(client: &mut StdioServer) {
    let method = "notifications/tools/list_changed";
    client.wait_for("list_changed", |message| message["method"] == method);
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[test]
fn a_client_is_answered_at_once_though_the_application_is_away() {
    let home = Home::new();
    let mut client = home.connect("ws://127.0.0.1:1", &["--connect-wait", "300ms"]);
    let opened = client.initialize();
    assert_eq!(opened["result"]["serverInfo"]["name"], "pontoon", "{opened}");
    assert_eq!(opened["result"]["capabilities"]["tools"], json!({"listChanged": true}));
    assert!(tools(&mut client, "list").is_empty());
    assert_eq!(client.ask(1, "ping", &json!({}))["result"], json!({}));
    let result = client.call(2, "echo", json!({"text": "x"}));
    assert_eq!(
        (&result["isError"], &result["_meta"]["pontoon/outcome"]),
        (&json!(true), &json!("not made"))
    );
    let said = text(&result);
    assert!(
        said.contains("ws://127.0.0.1:1/ cannot be reached")
            && said.contains("start the application"),
        "{said}"
    );
    home.finish(client);
}

#[test]
fn a_call_whose_own_time_is_over_before_the_application_comes_was_not_made() {
    let home = Home::new();
    let options = ["--timeout", "300ms", "--connect-wait", "60s"];
    let mut client = home.client("ws://127.0.0.1:1", &options);
    let result = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(
        (&result["isError"], &result["_meta"]["pontoon/outcome"]),
        (&json!(true), &json!("not made")),
        "{result}"
    );
    assert!(text(&result).contains("start the application"), "{result}");
    home.finish(client);
}

#[test]
fn tools_come_with_the_application_and_a_call_waits_for_it() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let place = app(&deeds).place();
    let url = "ws://127.0.0.1:".to_owned()
        + &match place {
            Place::WebSocket(port) => port.to_string(),
            _ => unreachable!("it was made so"),
        };
    let mut client = home.client(&url, &["--connect-wait", "30s"]);
    assert!(tools(&mut client, "before").is_empty());
    client.send_call("early", "echo", json!({"text": "waited"}));
    let app = LiveApp::start(&place, Manner::default(), &deeds);
    tools_changed(&mut client);
    assert_eq!(tools(&mut client, "after")[..2], ["echo", "read"]);
    // Promised before it was seen, and not offered by it.
    for (list, member) in [("resources/list", "resources"), ("prompts/list", "prompts")] {
        let answer = client.ask(list, list, &json!({}));
        assert_eq!(answer["result"][member], json!([]), "{answer}");
    }
    assert_eq!(text(&client.answer("early")["result"]), "waited");
    assert_eq!((deeds.count("waited"), app.accepted()), (1, 1));
    home.finish(client);
    wait_until("the application hears that this was on purpose", SOON, || app.closed() == 1);
}

#[test]
fn a_log_level_that_was_set_while_the_application_was_away_is_told_to_it() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let first = app(&deeds);
    let (url, place) = (first.url(), first.place());
    let mut client = home.client(&url, &[]);
    tools(&mut client, "seen");
    first.close();
    let set = client.ask("level", "logging/setLevel", &json!({"level": "error"}));
    assert_eq!(set["result"], json!({}), "{set}");
    let second = LiveApp::start(&place, Manner::default(), &deeds);
    wait_until("it is told", SOON, || second.heard("logging/setLevel") == 1);
    home.finish(client);
}

#[test]
fn answers_have_the_ids_of_their_requests_as_they_were_written() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    let ids = [json!(0), json!(7), json!("7"), json!("a b"), json!(9_007_199_254_740_991_u64)];
    for id in &ids {
        client.send_call(id.clone(), "echo", json!({"text": id.to_string()}));
    }
    for id in &ids {
        assert_eq!(text(&client.answer(id.clone())["result"]), id.to_string());
    }
    home.finish(client);
}

#[test]
fn the_last_tools_are_told_while_the_application_is_away_and_no_change_is_none() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let (url, place) = (app.url(), app.place());
    let mut client = home.client(&url, &[]);
    let known = tools(&mut client, "first");
    home.finish(client);
    app.close();
    // Another bridge, as the client starts it the next day.
    let mut client = home.client(&url, &[]);
    assert_eq!(tools(&mut client, "from disk"), known);
    let app = LiveApp::start(&place, Manner::default(), &deeds);
    assert_eq!(text(&client.call("there", "echo", json!({"text": "again"}))), "again");
    app.close();
    let more_tools = vec!["new".to_owned()];
    let app = LiveApp::start(&place, Manner { more_tools, ..Manner::default() }, &deeds);
    tools_changed(&mut client);
    assert!(tools(&mut client, "now").contains(&"new".to_owned()));
    let changes = |message: &Value| message["method"] == "notifications/tools/list_changed";
    assert!(
        !client.unheard().iter().any(changes),
        "it was told once, and not for what was the same"
    );
    drop(app);
    home.finish(client);
}

#[test]
fn a_change_of_tools_while_connected_is_told_once_they_are_known() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    let before = tools(&mut client, "before").len();
    client.call(1, "grow", json!({"text": "grown"}));
    tools_changed(&mut client);
    let after = tools(&mut client, "after");
    assert!(after.len() == before + 1 && after.contains(&"grown".to_owned()), "{after:?}");
    assert_eq!(app.accepted(), 1);
    home.finish(client);
}

#[test]
fn what_was_begun_is_answered_before_the_bridge_ends_with_its_input() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    client.send_call(1, "wait", json!({"text": "slow", "ms": 300}));
    client.send_call(2, "echo", json!({"text": "queued"}));
    client.close_input();
    assert_eq!(text(&client.answer(1)["result"]), "slow");
    assert_eq!(text(&client.answer(2)["result"]), "queued");
    assert!(client.wait().success());
    home.is_tidy();
}

#[test]
fn calls_go_to_the_application_one_after_the_other_unless_it_may_have_more() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    client.send_call(1, "silent", json!({"text": "first"}));
    client.send_call(2, "echo", json!({"text": "second"}));
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    assert_eq!(text(&client.answer(2)["result"]), "second");
    home.finish(client);
    let mut client = home.client(&app.url(), &["--max-in-flight", "2"]);
    client.send_call(1, "silent", json!({"text": "third"}));
    client.send_call(2, "echo", json!({"text": "fourth"}));
    assert_eq!(text(&client.answer(2)["result"]), "fourth");
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    home.finish(client);
}

#[test]
fn a_signal_ends_the_bridge_at_once_and_nothing_is_left() {
    use rustix::process::{Pid, Signal, kill_process};
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut client = home.client(&app.url(), &[]);
        client.send_call(1, "silent", json!({"text": "never"}));
        let pid = Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(client.wait().code(), Some(code));
        home.is_tidy();
    }
}

#[test]
fn no_temporary_folder_is_needed_and_none_is_left_by_a_bridge_that_is_killed() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut killed = home.client(&app.url(), &[]);
    assert_eq!(text(&killed.call(1, "echo", json!({"text": "x"}))), "x");
    killed.kill();
    home.is_tidy();
    let mut command = home.command(&app.url(), &[]);
    let mut client = StdioServer::start(command.env("TMPDIR", "/none"));
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    home.finish(client);
}

#[test]
fn wrong_words_are_told_in_one_line_with_what_to_write() {
    let home = Home::new();
    for (url, options, says) in [
        ("7400", &[][..], "write ws://HOST:PORT/PATH"),
        (
            "http://localhost:1",
            &[],
            "`claude mcp add --transport http NAME http://...`), or write ws://",
        ),
        ("https://a.example/mcp", &[], "http NAME https://...`), or write wss://"),
        ("ftp://localhost:1", &[], "ftp:// is not spoken here: write ws://"),
        ("ws://localhost:1", &["--header", "Authorization: Bearer sekret"], "--token-file"),
        ("ws://localhost:1", &["--header", "Cookie: sekret"], "--header-file"),
        (
            "ws://localhost:1",
            &["--header", "Sec-WebSocket-Key: sekret"],
            "Sec-WebSocket-Key belongs",
        ),
        ("ws://localhost:1", &["--header", "sekret"], "NAME: VALUE"),
        ("ws://localhost:1", &["--header-file", "/none"], "/none cannot be read"),
        ("unix:/run/x", &["--header", "A: b"], "no place for headers"),
        ("ws://me:secret@localhost:1", &[], "--token-file"),
        ("ws://localhost:1", &["--token-env", "NOT_SET"], "NOT_SET is not set"),
        ("ws://localhost:1", &["--log-level", "loud"], "no log level"),
        ("tcp://localhost:1", &["--token-file", "x"], "no place for a token"),
        ("ws://localhost:1", &["--ca-file", "x"], "only wss:// has"),
        ("wss://localhost:1", &["--ca-file", "/none"], "/none: it cannot be read"),
        ("ws:/a?token=sekret", &[], "\"ws:/a\" is no address"),
    ] {
        let output = home.command(url, options).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{url}: {told}");
        assert!(told.contains(says) && output.stdout.is_empty(), "{url}: {told}");
        assert!(!told.contains("sekret"), "{told}");
    }
}

//! What a bridge writes down: the log file, and the last messages.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::{Home, SOON, app, text};
use crate::binaries;

const TOKEN: &str = "canary-of-the-token";

/// An application that wants the token.
fn guarded(deeds: &Deeds) -> LiveApp {
    let manner = Manner { token: Some(TOKEN.to_owned()), ..Manner::default() };
    LiveApp::start(&Place::WebSocket(0), manner, deeds)
}

/// A bridge to it that knows the token, and its client.
fn client(home: &Home, app: &LiveApp, options: &[&str]) -> StdioServer {
    let token = home.0.path().join("token");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let token = token.display().to_string();
    home.client(&app.url(), &[&["--token-file", &token], options].concat())
}

/// What `pontoon status --messages` says of the one bridge.
#[expect(clippy::disallowed_methods, reason = "a person starts it so, and it ends by itself")]
fn messages(home: &Home) -> Value {
    let mut command = Command::new(&binaries().pontoon);
    command.args(["status", "--messages", "--json"]).env_clear().env("HOME", home.0.path());
    let output = command.output().unwrap();
    let mut bridges: Value = serde_json::from_slice(&output.stdout).unwrap();
    bridges[0]["messages"].take()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_log_file_has_more_than_standard_error_and_no_token() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let file = home.0.path().join("logs/max.log");
    let name = file.display().to_string();
    let mut client = client(&home, &app, &["--log-file", &name]);
    let said = client.call(1, "echo", json!({"text": "hello-argument"}));
    assert_eq!(text(&said), "hello-argument");
    wait_until("it is logged", SOON, || read(&file).contains("application connected"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Another bridge of the same command line has a file of its own.
    let mut second = Home::client(&home, "ws://127.0.0.1:1", &["--log-file", &name]);
    second.ask(1, "ping", &json!({}));
    let other = home.0.path().join("logs/max-2.log");
    wait_until("the second logs elsewhere", SOON, || read(&other).contains("no connection"));
    assert!(second.finish().success());
    home.finish(client);
    let log = read(&file);
    assert!(log.contains("   INFO application connected"), "{log}");
    assert!(!log.contains("127.0.0.1:1/"), "{log}");
    for secret in [TOKEN, "hello-argument"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn a_log_file_that_was_there_keeps_what_it_has() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let file = home.0.path().join("notes.txt");
    let mine = "what I wrote, without a newline";
    fs::write(&file, mine).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let mut client = home.client(&app.url(), &["--log-file", &file.display().to_string()]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    home.finish(client);
    let log = read(&file);
    assert!(log.starts_with(&format!("{mine}\n")), "{log}");
    assert!(log.contains("application connected"), "{log}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_log_file_that_is_full_becomes_an_old_one() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let file = home.0.path().join("max.log");
    let full = "an old line\n".repeat((10 << 20) / 12);
    fs::write(&file, &full).unwrap();
    let name = file.display().to_string();
    let mut client = home.client(&app.url(), &["--log-file", &name]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    home.finish(client);
    let log = read(&file);
    assert!(log.contains("application connected") && !log.contains("an old line"), "{}", log.len());
    let old = home.0.path().join("max.log.1");
    assert!(read(&old).starts_with("an old line\n") && read(&old).len() >= full.len());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_log_file_that_cannot_be_written_is_told_once_and_costs_no_call() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let (target, link) = (home.0.path().join("target"), home.0.path().join("link.log"));
    fs::write(&target, "mine\n").unwrap();
    symlink(&target, &link).unwrap();
    for (file, why) in [
        (link.display().to_string(), "it is a symbolic link"),
        ("/dev/full".to_owned(), "it is not a file of its own"),
        ("/proc/none/max.log".to_owned(), "No such file or directory"),
    ] {
        let errors = home.0.path().join("stderr");
        let mut command = home.command(&app.url(), &["--log-file", &file]);
        let stderr = fs::File::create(&errors).unwrap();
        let mut client = StdioServer::start(command.stderr(stderr));
        client.initialize();
        for id in 0..20 {
            assert_eq!(text(&client.call(id, "echo", json!({"text": "x"}))), "x");
        }
        home.finish(client);
        let told = read(&errors);
        let times = told.matches("the log file cannot be written").count();
        assert!(times == 1 && told.contains(why), "{file}: {told}");
    }
    assert_eq!(read(&target), "mine\n");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a client starts the bridge so, and the test ends it"
)]
fn the_node_bridge_s_words_have_a_log_file_too() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let file = home.0.path().join("max.log");
    let mut command = Command::new(&binaries().pontoon);
    // With a token on the command line it begins again without it, and with the rest.
    command.arg("ws").arg("--log-file").arg(&file).args([&app.url(), TOKEN]).env_clear();
    command.env("HOME", home.0.path()).env("TMPDIR", home.0.path().join("tmp"));
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    home.finish(client);
    let log = read(&file);
    assert!(log.contains("application connected") && !log.contains(TOKEN), "{log}");
}

#[test]
fn the_last_messages_are_kept_without_what_they_say() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let mut client = client(&home, &app, &[]);
    for id in 0..200 {
        client.call(id, "echo", json!({"text": format!("argument {id}")}));
    }
    let messages = messages(&home);
    let last = messages["last"].as_array().unwrap();
    assert_eq!(last.len(), 256);
    assert!(messages["total"].as_u64().unwrap() >= 400, "{}", messages["total"]);
    let newest = &last[255];
    let facts = ["direction", "kind", "method"].map(|name| newest[name].as_str().unwrap());
    assert_eq!(facts, ["heard", "result", "tools/call"], "{newest}");
    assert!(newest["took_ms"].as_f64().is_some() && newest["bytes"].as_u64().unwrap() > 40);
    assert_eq!(last[254]["id"], newest["id"], "its request");
    assert!(!messages.to_string().contains("argument"), "nobody asked for that");
    home.finish(client);
}

#[test]
fn how_messages_begin_is_kept_where_it_is_asked_for_and_no_secret_is_in_it() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let mut client = client(&home, &app, &["--record-messages"]);
    let said = format!("an argument with {TOKEN}");
    let arguments = json!({"text": said, "apiKey": "canary-of-a-key"});
    assert_eq!(text(&client.call(1, "echo", arguments)), said);
    let long = "x".repeat(100_000);
    assert_eq!(text(&client.call(2, "echo", json!({"text": long}))), long);
    let messages = messages(&home);
    let last = messages["last"].as_array().unwrap();
    let texts: Vec<_> = last.iter().map(|it| it["text"].as_str().unwrap()).collect();
    let all = texts.join("\n");
    assert!(
        all.contains("an argument with [hidden]") && all.contains("\"apiKey\":\"[hidden]"),
        "{all}"
    );
    assert!(!messages.to_string().contains("canary"), "{messages}");
    assert!(texts.iter().all(|text| text.len() <= 600), "{all}");
    assert!(last.iter().any(|it| it["bytes"].as_u64().unwrap() > 100_000), "{all}");
    home.finish(client);
}

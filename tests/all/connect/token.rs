//! Tokens that a command writes.

use std::fs;
use std::process::Command;

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use serde_json::json;

use super::{Home, SOON, text};

fn guarded(deeds: &Deeds) -> LiveApp {
    let manner = Manner { token: Some("open-sesame".to_owned()), ..Manner::default() };
    LiveApp::start(&Place::WebSocket(0), manner, deeds)
}

/// A bridge with this command for its token, that tells all it does to the file `told`.
fn command(home: &Home, app: &LiveApp, token: &str) -> Command {
    let mut command = home.command(&app.url(), &["--token-command", token]);
    command.current_dir(home.0.path()).env("PATH", "/usr/bin:/bin").env("DEBUG", "1");
    command.stderr(fs::File::create(home.0.path().join("told")).unwrap());
    command
}

fn told(home: &Home) -> String {
    fs::read_to_string(home.0.path().join("told")).unwrap()
}

#[test]
fn a_command_is_run_for_each_connection_and_what_it_writes_is_never_told() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let script = "echo run >> runs; echo 'asking the vault' >&2; echo \"open-$REST\"; echo more";
    let mut client = StdioServer::start(command(&home, &app, script).env("REST", "sesame"));
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    app.drop_connections();
    assert_eq!(text(&client.call(2, "echo", json!({"text": "y"}))), "y");
    home.finish(client);
    let runs = fs::read_to_string(home.0.path().join("runs")).unwrap().lines().count();
    assert_eq!(runs, app.accepted(), "once for each connection, and not for a guess");
    let told = told(&home);
    assert!(told.contains("asking the vault") && !told.contains("sesame"), "{told}");
}

#[test]
fn a_command_is_not_run_while_the_application_is_away() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let mut command = command(&home, &app, "echo run >> runs; echo open-sesame");
    let place = app.place();
    app.close();
    let mut client = StdioServer::start(command.arg("--connect-wait=200ms"));
    client.initialize();
    client.call(1, "echo", json!({"text": "x"}));
    assert!(!home.0.path().join("runs").exists());
    let manner = Manner { token: Some("open-sesame".to_owned()), ..Manner::default() };
    let _app = LiveApp::start(&place, manner, &deeds);
    wait_until("it is run", SOON, || home.0.path().join("runs").exists());
    home.finish(client);
}

#[test]
fn a_command_that_fails_or_writes_nothing_is_told_with_what_it_said() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    for (script, says) in [
        (
            "echo open-sesame; echo 'the vault is locked' >&2; exit 3",
            "exited with code 3; it said \"the vault is locked\"",
        ),
        ("true", "wrote no first line of text"),
        ("echo; echo open-sesame", "wrote no first line of text"),
        ("printf 'a\\tb\\001c'", "it holds what no header may"),
        ("no-such-command-here", "exited with code 127"),
        ("exec yes open-sesame", "was killed by signal 13"),
    ] {
        let mut client = StdioServer::start(command(&home, &app, script).arg("--connect-wait=3s"));
        client.initialize();
        let away = client.call(1, "echo", json!({"text": "x"}));
        let said = text(&away);
        assert!(
            said.contains("the token cannot be read: ") && said.contains(says),
            "{script}: {said}"
        );
        assert!(!said.contains("sesame"), "{said}");
        home.finish(client);
        assert!(!told(&home).contains("sesame"));
    }
}

#[test]
fn a_command_that_hangs_ends_with_the_bridge_and_with_all_it_started() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = guarded(&deeds);
    let script = "sleep 1000 & echo $! > pids; echo $$ >> pids; wait";
    for is_killed in [false, true] {
        let mut client = StdioServer::start(&mut command(&home, &app, script));
        client.initialize();
        let pids = || fs::read_to_string(home.0.path().join("pids")).unwrap_or_default();
        wait_until("it runs", SOON, || pids().lines().count() == 2);
        let pids: Vec<String> = pids().lines().map(str::to_owned).collect();
        match is_killed {
            true => client.kill(),
            false => assert!(client.finish().success()),
        }
        for pid in pids {
            wait_until("it is gone", SOON, || !std::path::Path::new("/proc").join(&pid).exists());
        }
        fs::remove_file(home.0.path().join("pids")).unwrap();
    }
}

//! The examples of `--help`, each run as it is typed; the old words of the Node bridge.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use pontoon_tests::certificates::Authority;
use pontoon_tests::live_app::{ComingApp, Deeds, LiveApp, Manner, Place, socket_in};
use pontoon_tests::rig::send_signal;
use pontoon_tests::stdio::StdioServer;
use rustix::process::Signal;
use serde_json::json;

use super::entrance::{come, free_port};
use super::finding::leave;
use super::{Home, text};
use crate::binaries;

/// The examples in the help of a command.
fn examples(home: &Home, command: &str) -> Vec<String> {
    let output = pontoon(home, &[command, "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, after) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{help}"));
    after.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client starts the bridge so, and the test ends it"
)]
fn pontoon(home: &Home, words: &[&str]) -> Command {
    let mut command = Command::new(&binaries().pontoon);
    command.args(words).env_clear().env("HOME", home.0.path());
    command.env("TMPDIR", home.0.path().join("tmp"));
    command
}

/// What a user types, in a shell that finds `pontoon`, `claude` and `pass`.
#[expect(
    clippy::disallowed_methods,
    reason = "a client starts the bridge so, and the test ends it"
)]
fn typed(home: &Home, line: &str) -> Command {
    let programs = home.0.path().join("bin");
    let mut command = Command::new("/bin/sh");
    // Without a process in between, which would not hear of signals.
    let line = match line.split_once("pontoon ") {
        Some((variables, words)) if variables.contains('=') => {
            format!("{variables}exec pontoon {words}")
        }
        _ => format!("exec {line}"),
    };
    command.args(["-c", &line]).env_clear().current_dir(home.0.path());
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    command.env("HOME", home.0.path()).env("TMPDIR", home.0.path().join("tmp"));
    command
}

fn program(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

fn home_with_programs() -> Home {
    let home = Home::new();
    let programs = home.0.path().join("bin");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(&binaries().pontoon, programs.join("pontoon")).unwrap();
    // It keeps what follows the dashes, and runs that when it starts.
    program(&programs, "claude", "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"");
    program(&programs, "pass", "echo sesame");
    home
}

fn port(app: &LiveApp) -> u16 {
    match app.place() {
        Place::WebSocket(port) | Place::WebSocketTls(port, _) | Place::Tcp(port) => port,
        place => panic!("{place:?} has no port"),
    }
}

#[test]
fn every_example_of_connect_and_of_ws_runs() {
    let (home, deeds) = (home_with_programs(), Deeds::default());
    let token = Some("sesame".to_owned());
    let open = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let guarded = Manner { token, ..Manner::default() };
    let guarded = LiveApp::start(&Place::WebSocket(0), guarded, &deeds);
    let lines = LiveApp::start(&Place::Tcp(0), Manner::default(), &deeds);
    let socket = socket_in(home.0.path());
    let _socket_app = LiveApp::start(&Place::Unix(socket.clone()), Manner::default(), &deeds);
    let authority = Authority::default();
    authority.write(home.0.path(), "studio.pem");
    let place = Place::WebSocketTls(0, authority.sign(&["localhost"]).server(None));
    let secure = LiveApp::start(&place, Manner::default(), &deeds);
    leave(&home, "max", &open.url(), "");
    let entrance = free_port();
    for command in ["connect", "ws"] {
        let examples = examples(&home, command);
        assert!(examples.len() >= 4, "{examples:?}");
        for example in examples {
            let wants_token = example.contains("oken") || example.contains("TOKEN");
            let app = if wants_token { &guarded } else { &open };
            let line = example
                .replace("7400", &port(app).to_string())
                .replace("8090", &port(app).to_string())
                .replace("9876", &port(&lines).to_string())
                .replace("9223-9232", &format!("{0}-{0}", port(app)))
                .replace("9009", &entrance.to_string())
                .replace("studio.example:7443", &format!("localhost:{}", port(&secure)))
                .replace("/run/user/1000/editor.sock", socket.to_str().unwrap());
            let mut shell = typed(&home, &line);
            shell.env("MAX_TOKEN", "sesame");
            if line == "pontoon ws" {
                shell.env("MAXMCP_PORT", port(app).to_string());
            }
            let mut client = StdioServer::start(&mut shell);
            client.initialize();
            let coming = line.contains("--listen").then(|| {
                let kept =
                    fs::read_to_string(home.0.path().join(".local/state/pontoon/listen-token"));
                let shown = format!("Bearer {}", kept.unwrap());
                let headers = [("authorization", &*shown), ("origin", "https://app.example")];
                come(entrance, &headers, &deeds).unwrap()
            });
            let said = client.call(1, "echo", json!({"text": example}));
            assert_eq!(text(&said), example, "{line}");
            assert!(client.finish().success(), "{line}");
            coming.into_iter().for_each(ComingApp::go);
        }
    }
}

#[test]
fn every_example_of_status_runs() {
    let (home, deeds) = (home_with_programs(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut client = home.client(&app.url(), &[]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    let pid = client.pid().to_string();
    let rig = crate::rig([crate::fixture("stateless")]);
    let replica = format!("http://{}", rig.address());
    let examples = examples(&home, "status");
    assert!(examples.iter().any(|example| example.contains("--watch")), "{examples:?}");
    for example in examples {
        // What it is for stands beside it.
        let line = example.split("  ").next().unwrap().replace("4242", &pid);
        let line = line.replace("http://a:8080", &replica).replace("http://b:8080", &replica);
        let mut shell = typed(&home, &line);
        if line.contains("--watch") {
            watch(&mut shell, &pid);
            continue;
        }
        let output = shell.output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {told}");
        if line.contains("--url") {
            assert!(told.contains("2 replicas"), "{line}: {told}");
            continue;
        }
        assert!(told.contains(&pid), "{line}: {told}");
        assert_eq!(line.contains("--messages"), told.contains("tools/call"), "{line}: {told}");
        if line.contains("--json") {
            serde_json::from_str::<serde_json::Value>(&told).unwrap();
        }
    }
    assert!(client.finish().success());
    rig.stop();
}

/// Sees that the table comes again and again, until it is interrupted.
fn watch(shell: &mut Command, pid: &str) {
    let mut watching = shell.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut rows = lines.map(Result::unwrap).filter(|line| line.trim_start().starts_with(pid));
    for _ in 0..3 {
        let row = rows.next().expect("it goes on");
        assert!(row.contains("connected"), "{row}");
    }
    send_signal(watching.id(), Signal::INT).unwrap();
    // What it wrote before it heard of that.
    rows.for_each(drop);
    assert_eq!(watching.wait().unwrap().code(), Some(130));
}

#[test]
fn a_token_among_the_words_of_ws_works_with_a_warning_and_is_taken_out_of_sight() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let manner = Manner { token: Some("open-sesame".to_owned()), ..Manner::default() };
    let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
    let told = home.0.path().join("told");
    let mut command = pontoon(&home, &["ws", &app.url(), "open-sesame"]);
    command.env("DEBUG", "1").stderr(fs::File::create(&told).unwrap());
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    let words = fs::read(format!("/proc/{}/cmdline", client.pid())).unwrap();
    let words = String::from_utf8_lossy(&words).into_owned();
    assert!(words.contains(&app.url()) && !words.contains("sesame"), "{words}");
    home.finish(client);
    let told = fs::read_to_string(&told).unwrap();
    let warnings: Vec<_> = told.lines().filter(|line| line.starts_with("warning:")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("PONTOON_TOKEN"), "{told}");
    assert!(!told.contains("sesame") && told.contains("application connected"), "{told}");
}

#[test]
fn wrong_words_of_ws_are_told_in_one_line() {
    let home = Home::new();
    for (words, port, says) in [
        (&["ws"][..], "max", "MAXMCP_PORT is \"max\", which is no port"),
        (&["ws"], "0", "which is no port"),
        (&["ws", "http://localhost:1"], "", "http:// is not spoken here"),
        (&["ws", "--host", "a b"], "", "is no address of an application"),
    ] {
        let output = pontoon(&home, words).env("MAXMCP_PORT", port).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{words:?}: {told}");
        assert!(told.contains(says), "{words:?}: {told}");
    }
}

//! The command line: help, checks of the configuration, and calls from a shell.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pontoon_tests::client::{Endpoint, Legacy, Speaker};
use pontoon_tests::rig::{bridge_command, holds_within, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::binaries;

/// Runs the bridge with these arguments in a directory of its own, to its end.
fn pontoon(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = bridge_command(&binaries().pontoon, directory);
    command.args(arguments).stdin(Stdio::null());
    output(&mut command)
}

/// The output of a command that may not take longer than half a minute.
fn output(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let waiting = std::thread::spawn(move || child.wait_with_output().unwrap());
    if !holds_within(Duration::from_secs(30), || waiting.is_finished()) {
        send_signal(pid, Signal::KILL).unwrap();
        panic!("{command:?} does not end: {:?}", waiting.join().unwrap());
    }
    waiting.join().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn all(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn help_tells_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let help = pontoon(directory.path(), &["--help"]);
    assert!(help.status.success(), "{}", all(&help));
    for command in ["serve", "check", "tools", "call", "gc", "completions", "demo"] {
        assert!(text(&help.stdout).contains(command), "{command} is not in {}", all(&help));
        let own = pontoon(directory.path(), &[command, "--help"]);
        assert!(own.status.success() && own.stdout.len() > 100, "{command}: {}", all(&own));
    }
    let serve = text(&pontoon(directory.path(), &["serve", "--help"]).stdout);
    for option in ["--config", "--listen", "--allowed-host"] {
        assert!(serve.contains(option), "{option} is not in {serve}");
    }
    for (command, facts) in [
        ("serve", &["/app/config/mcp-servers.json", "warning", "critical", "/ready"][..]),
        ("gc", &["/app/config/mcp-servers.json"]),
        ("check", &["--insecure"]),
    ] {
        let help = text(&pontoon(directory.path(), &[command, "--help"]).stdout);
        facts.iter().for_each(|fact| assert!(help.contains(fact), "{fact} is not in {help}"));
    }
    let version = text(&pontoon(directory.path(), &["--version"]).stdout);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let wrong = pontoon(directory.path(), &["srve"]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("serve"), "{}", all(&wrong));
}

#[test]
fn check_tells_every_mistake_at_once_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.json");
    let config = "{\n  // comments are fine\n  \"mcpServers\": {\n    \"a\": {\n      \
                  \"comand\": \"/bin/true\"\n    },\n    \"b\": {\n      \"command\": \"/bin/true\",\n      \
                  \"mode\": \"sometimes\",\n      \"timeout\": -1\n    },\n  }\n}\n";
    fs::write(&file, config).unwrap();
    let checked = pontoon(directory.path(), &["check", "--config", "mine.json"]);
    assert!(!checked.status.success(), "{}", all(&checked));
    let said = all(&checked);
    for wanted in
        ["mine.json", "comand", "command", "line 9", "sometimes", "stateful", "line 10", "timeout"]
    {
        assert!(said.contains(wanted), "{wanted:?} is not in {said}");
    }
    let served =
        pontoon(directory.path(), &["serve", "--listen", "127.0.0.1:0", "--config", "mine.json"]);
    assert!(!served.status.success(), "served with mistakes: {}", all(&served));
}

#[test]
fn check_refuses_servers_that_are_called_like_paths_of_the_bridge() {
    const PATHS: [&str; 15] = [
        "mcp",
        "mcpo",
        "sse",
        "ws",
        "files",
        "health",
        "ready",
        "metrics",
        "docs",
        "redoc",
        "openapi.json",
        "console",
        "favicon.ico",
        "robots.txt",
        "api",
    ];
    let directory = tempfile::tempdir().unwrap();
    let servers: serde_json::Map<_, _> = PATHS
        .iter()
        .chain(&["docs2"])
        .map(|name| ((*name).to_owned(), json!({"command": "/bin/true"})))
        .collect();
    let config = json!({"mcpServers": servers}).to_string();
    fs::write(directory.path().join("mine.json"), config).unwrap();
    let checked = pontoon(directory.path(), &["check", "--config", "mine.json"]);
    assert!(!checked.status.success(), "{}", all(&checked));
    let said = all(&checked);
    for path in PATHS {
        let wanted = format!("`{path}` is a path of the bridge itself, and no name for a server");
        assert_eq!(said.matches(&wanted).count(), 1, "{path}: {said}");
    }
    assert_eq!(said.matches("is a path of the bridge itself").count(), PATHS.len(), "{said}");
}

#[test]
fn check_of_a_good_config_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("started");
    let touch = json!({"command": "/bin/sh", "args": ["-c", format!("touch {}", trace.display())]});
    let config = json!({"mcpServers": {"touch": touch}});
    fs::write(directory.path().join("mine.json"), config.to_string()).unwrap();
    let checked = pontoon(directory.path(), &["check", "--config", "mine.json"]);
    assert!(checked.status.success(), "{}", all(&checked));
    assert!(all(&checked).contains("touch"), "{}", all(&checked));
    assert!(!trace.exists(), "check started the server");
}

#[test]
fn only_what_listens_is_refused_for_where_it_would_listen() {
    let directory = tempfile::tempdir().unwrap();
    let demo = json!({"command": binaries().pontoon, "args": ["demo"]});
    let servers = json!({"mcpServers": {"demo": demo}}).to_string();
    fs::write(directory.path().join("mcp-servers.json"), servers).unwrap();
    fs::create_dir(directory.path().join("jobs")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = bridge_command(&binaries().pontoon, directory.path());
        command.env("MCPO_LISTEN", "0.0.0.0:0").env("MCPO_JOBS_DIR", directory.path().join("jobs"));
        output(command.args(arguments).stdin(Stdio::null()))
    };
    for arguments in [&["serve"][..], &["check"]] {
        let refused = run(arguments);
        assert!(!refused.status.success(), "{arguments:?}: {}", all(&refused));
        assert!(text(&refused.stderr).contains("--insecure"), "{arguments:?}: {}", all(&refused));
    }
    let checked = run(&["check", "--insecure"]);
    assert!(checked.status.success(), "{}", all(&checked));
    assert!(text(&checked.stderr).contains("whoever reaches 0.0.0.0:0"), "{}", all(&checked));
    for arguments in [&["gc"][..], &["tools", "demo"]] {
        let done = run(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", all(&done));
        assert!(!text(&done.stderr).contains("MCPO_LISTEN"), "{arguments:?}: {}", all(&done));
    }
}

#[test]
fn without_a_configuration_strangers_need_a_key_that_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = bridge_command(&binaries().pontoon, directory.path());
    command.env("MCPO_LISTEN", "0.0.0.0:0").env("MCPO_JOBS_DIR", directory.path().join("jobs"));
    let checked = output(command.arg("check").stdin(Stdio::null()));
    assert!(checked.status.success(), "{}", all(&checked));
    let told = "there is no API key: the demo asks for one that is made at its start";
    assert!(text(&checked.stderr).contains(told), "{}", all(&checked));
}

#[test]
fn gc_works_whatever_is_wrong_with_the_servers() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine.json"), "{\"mcpServers\": {\"a\": {}}}").unwrap();
    fs::create_dir(directory.path().join("jobs")).unwrap();
    let gc = |arguments: &[&str]| {
        let mut command = bridge_command(&binaries().pontoon, directory.path());
        command.env("MCPO_JOBS_DIR", directory.path().join("jobs"));
        command.args(["gc", "--config", "mine.json"]).args(arguments);
        output(command.stdin(Stdio::null()))
    };
    let done = gc(&[]);
    assert!(done.status.success() && all(&done).is_empty(), "{}", all(&done));
    let done = gc(&["--verbose"]);
    assert!(done.status.success(), "{}", all(&done));
    assert!(text(&done.stdout).contains("removed 0 jobs"), "{}", all(&done));
    assert!(text(&done.stderr).contains("warning: "), "{}", all(&done));
}

#[test]
fn a_named_config_that_is_missing_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0", "--config", "gone.json"][..],
        &["check", "--config", "gone.json"],
        &["tools", "--config", "gone.json", "demo"],
    ] {
        let output = pontoon(directory.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", all(&output));
        assert!(text(&output.stderr).contains("gone.json"), "{arguments:?}: {}", all(&output));
    }
    let mut command = bridge_command(&binaries().pontoon, directory.path());
    command.env("MCPO_CONFIG_FILE", "gone.json").args(["serve", "--listen", "127.0.0.1:0"]);
    let output = output(command.stdin(Stdio::null()));
    assert!(
        !output.status.success() && text(&output.stderr).contains("gone.json"),
        "{}",
        all(&output)
    );
}

#[test]
fn a_variable_that_is_not_there_yet_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    for (name, value) in
        [("MCPO_SESSION_STORE", "redis"), ("MCPO_MAX_CONCURENT", "4"), ("MCPO_TIMEOUT", "soon")]
    {
        let mut command = bridge_command(&binaries().pontoon, directory.path());
        command.env(name, value).args(["serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let ended = holds_within(Duration::from_secs(5), || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(name), "{name}: {said}");
        // A name that nobody knows may be another program's; it is told and not obeyed.
        assert!(ended || name == "MCPO_MAX_CONCURENT", "{name}={value} was accepted: {said}");
    }
}

/// Serves with these words in a directory until it is dropped.
struct Serving {
    child: std::process::Child,
    address: std::net::SocketAddr,
}

impl Serving {
    fn begin(directory: &Path, words: &[&str]) -> Self {
        let mut command = bridge_command(&binaries().pontoon, directory);
        command.arg("serve").args(words).stdin(Stdio::null()).stdout(Stdio::null());
        let log = directory.join("log");
        let child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut serving = Self { child, address: ([127, 0, 0, 1], 0).into() };
        let mut address = None;
        let listens = holds_within(Duration::from_secs(10), || {
            let said = fs::read_to_string(&log).unwrap();
            address = said.split_once("listening on http://").and_then(|(_, rest)| {
                let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.' && it != ':')?;
                rest[..end].parse().ok()
            });
            address.is_some()
        });
        assert!(listens, "{}", fs::read_to_string(&log).unwrap());
        serving.address = address.unwrap();
        serving
    }

    fn endpoint(&self, path: &str) -> Endpoint {
        Endpoint { address: self.address, path: path.to_owned() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        send_signal(self.child.id(), Signal::TERM).unwrap();
        wait_until("it ends", Duration::from_secs(10), || self.child.try_wait().unwrap().is_some());
    }
}

#[test]
fn without_a_config_the_demo_serves_within_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let serving = Serving::begin(directory.path(), &["--listen", "127.0.0.1:0"]);
    let mut session = Legacy::open(&serving.endpoint("/mcp/demo"));
    let list = session.ask(1, "tools/list", json!({}));
    let tools = list.answer()["result"]["tools"].as_array().unwrap().len();
    let greeting = session.call(2, "greet", json!({"name": "Ada"}));
    let took = begun.elapsed();
    session.end();
    assert!(tools >= 3, "{}", list.text());
    assert!(greeting.tool_text().unwrap().contains("Ada"), "{}", greeting.text());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_server_that_is_typed_works_where_it_was_typed() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = binaries().fixture_server.to_str().unwrap().to_owned();
    let words = ["--port", "0", "--", &fixture, "--start-delay-ms", "1"];
    let serving = Serving::begin(directory.path(), &words);
    let mut session = Legacy::open(&serving.endpoint("/mcp/fixture-server"));
    let wrote = session.call(1, "write_file", json!({"name": "made.txt", "text": "x"}));
    assert_eq!(wrote.tool_text().as_deref(), Some("wrote 1 bytes to made.txt"), "{}", wrote.text());
    assert_eq!(fs::read_to_string(directory.path().join("made.txt")).unwrap(), "x");
    session.end();
}

#[test]
fn tools_and_call_use_a_server_from_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let listed = pontoon(directory.path(), &["tools", "demo"]);
    assert!(listed.status.success(), "{}", all(&listed));
    for tool in ["greet", "ask_name", "count"] {
        assert!(text(&listed.stdout).contains(tool), "{tool} is not in {}", all(&listed));
    }
    let called = pontoon(directory.path(), &["call", "demo", "greet", "name=Ada"]);
    assert!(called.status.success(), "{}", all(&called));
    assert!(text(&called.stdout).contains("Ada"), "{}", all(&called));
    for arguments in [
        &["call", "demo", "no_such_tool"][..],
        &["call", "nowhere", "greet"],
        &["call", "demo", "greet", "no-equals"],
        &["tools", "nowhere"],
    ] {
        let output = pontoon(directory.path(), arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", all(&output));
        assert!(!output.stderr.is_empty(), "{arguments:?} failed without a word");
    }
}

#[test]
fn call_uses_the_servers_of_a_config_and_leaves_none_running() {
    let directory = tempfile::tempdir().unwrap();
    let tag = format!("cli-{}", std::process::id());
    let fixture =
        json!({"command": binaries().fixture_server, "mode": "stateful", "env": {"CLI_TAG": tag}});
    let config = json!({"mcpServers": {"fixture": fixture}});
    fs::write(directory.path().join("mine.json"), config.to_string()).unwrap();
    let arguments = ["call", "--config", "mine.json", "fixture", "count", "steps=3", "delay_ms=10"];
    let output = pontoon(directory.path(), &arguments);
    assert!(output.status.success(), "{}", all(&output));
    assert!(text(&output.stdout).contains("counted to 3"), "{}", all(&output));
    let arguments = ["call", "--config", "mine.json", "fixture", "crash"];
    let output = pontoon(directory.path(), &arguments);
    assert!(!output.status.success(), "{}", all(&output));
    assert!(all(&output).contains("crashing because it was asked to"), "{}", all(&output));
    wait_until("nothing is left", Duration::from_secs(2), || {
        pontoon_tests::rig::processes::tagged("CLI_TAG", &tag).is_empty()
    });
}

#[test]
fn a_command_that_is_told_to_end_leaves_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        for arguments in [&["tools", "hangs"][..], &["call", "hangs", "echo"]] {
            let directory = tempfile::tempdir().unwrap();
            let (temporary, ready) = (directory.path().join("t"), directory.path().join("ready"));
            fs::create_dir(&temporary).unwrap();
            let script = format!("touch {}; exec sleep 600", ready.display());
            let hangs = json!({"command": "/bin/sh", "args": ["-c", script]});
            let config = json!({"mcpServers": {"hangs": hangs}});
            fs::write(directory.path().join("mcp-servers.json"), config.to_string()).unwrap();
            let mut command = bridge_command(&binaries().pontoon, directory.path());
            command.args(arguments).env("TMPDIR", &temporary).stdin(Stdio::null());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            wait_until("it has begun", Duration::from_secs(10), || ready.exists());
            assert!(fs::read_dir(&temporary).unwrap().next().is_some(), "or this shows nothing");
            send_signal(child.id(), signal).unwrap();
            let mut status = None;
            wait_until("it ends", Duration::from_secs(20), || {
                status = child.try_wait().unwrap();
                status.is_some()
            });
            assert_eq!(status.and_then(|status| status.code()), Some(code), "{arguments:?}");
            let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
            assert!(left.is_empty(), "{arguments:?}: {left:?}");
        }
    }
}

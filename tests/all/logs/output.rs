//! Where the log goes: standard output, whoever reads it or not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use pontoon_tests::client::{Endpoint, Modern, Request, Speaker};
use pontoon_tests::metrics::Page;
use pontoon_tests::rig::{bridge_command, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::parsed;
use crate::{binaries, fixture, rig};

const SOON: Duration = Duration::from_secs(20);

/// A bridge with a server that floods its standard error, all of which is logged.
struct Bridge {
    child: Child,
    address: SocketAddr,
    _place: TempDir,
}

impl Bridge {
    fn start(stdout: Stdio) -> Self {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("mcp-servers.json");
        let flood = json!({"command": binaries().rude_server, "args": ["--how", "flood-stderr"], "mode": "stateful"});
        fs::write(&config, json!({"mcpServers": {"flood": flood}}).to_string()).unwrap();
        let mut command = bridge_command(&binaries().pontoon, place.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "debug", "--config"]);
        command.arg(&config).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut greeting = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = greeting.find_map(|line| {
            Some(line.unwrap().split_once("listening on http://")?.1.parse().unwrap())
        });
        std::thread::spawn(move || greeting.for_each(drop));
        Self { child, address: address.expect("it listens"), _place: place }
    }

    fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("piped")
    }

    /// Calls are answered while log lines are lost, and the end is an orderly one.
    fn check_goes_on(mut self) {
        let endpoint = Endpoint { address: self.address, path: "/mcp/flood".to_owned() };
        let mut client = Modern::new(&endpoint);
        let mut answers = 0;
        wait_until("log lines are lost", Duration::from_secs(120), || {
            let answer = client.call(1, "echo", json!({"text": "x"}));
            assert_eq!(answer.tool_text().as_deref(), Some("x"), "{}", answer.text());
            answers += 1;
            let page = Request::new("GET", "/metrics").send(self.address).unwrap();
            let page = Page::parse(&page.text()).unwrap();
            page.value("pontoon_log_lines_dropped_total", &[]) > 0.0
        });
        let answer = client.call(2, "echo", json!({"text": "after"}));
        assert_eq!(answer.tool_text().as_deref(), Some("after"), "after {answers}");
        send_signal(self.child.id(), Signal::TERM).unwrap();
        let mut status = None;
        wait_until("it ends", SOON, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}");
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // Gone already, if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_log_is_on_standard_output_and_the_greeting_is_not() {
    let rig = rig([fixture("stateless")]);
    wait_until("a line", SOON, || rig.log().contains("server ready"));
    assert!(parsed(&rig.log()).iter().any(|line| line["message"] == "server ready"));
    assert!(!rig.log().contains("listening on http://"), "{}", rig.log());
    assert!(rig.stderr().contains("listening on http://"), "{}", rig.stderr());
    rig.stop();
}

#[test]
fn a_reader_that_went_away_stops_nothing() {
    let mut bridge = Bridge::start(Stdio::piped());
    drop(bridge.stdout());
    bridge.check_goes_on();
}

#[test]
fn a_reader_that_reads_nothing_stops_nothing() {
    let mut bridge = Bridge::start(Stdio::piped());
    let unread = bridge.stdout();
    bridge.check_goes_on();
    drop(unread);
}

#[test]
fn an_output_that_is_full_stops_nothing() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    Bridge::start(full.into()).check_goes_on();
}

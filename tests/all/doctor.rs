//! `pontoon doctor`: servers with known faults are examined, and the report names those and no others.

mod clients;
mod ends;
mod forms;
mod http;
mod machines;
mod probes;
mod seed;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pontoon_tests::rig::{bridge_command, holds_within, processes, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::binaries;

/// A place for one examination, in which nothing may be left.
struct Surgery {
    place: tempfile::TempDir,
    tag: String,
}

impl Surgery {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("t")).unwrap();
        let tag = place.path().display().to_string();
        Self { place, tag }
    }

    fn temporary(&self) -> PathBuf {
        self.place.path().join("t")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bridge_command(&binaries().pontoon, self.place.path());
        command.arg("doctor").args(arguments).stdin(Stdio::null());
        // Servers have it, too, so that none can be missed.
        command.env("TMPDIR", self.temporary()).env("DOCTOR_TAG", &self.tag);
        command
    }

    /// Examines, to the end, and looks for what is left.
    #[track_caller]
    fn examine(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let waiting = std::thread::spawn(move || child.wait_with_output().unwrap());
        if !holds_within(Duration::from_secs(60), || waiting.is_finished()) {
            send_signal(pid, Signal::KILL).unwrap();
            panic!("{arguments:?} does not end: {:?}", waiting.join().unwrap());
        }
        let output = waiting.join().unwrap();
        self.expect_nothing_left();
        output
    }

    #[track_caller]
    fn expect_nothing_left(&self) {
        wait_until("no process is left", Duration::from_secs(5), || {
            processes::tagged("DOCTOR_TAG", &self.tag).is_empty()
        });
        let left: Vec<_> = fs::read_dir(self.temporary()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The report of one server in JSON, and the exit code.
#[track_caller]
fn report(arguments: &[&str]) -> (Value, i32) {
    let output = Surgery::new().examine(&[&["--json"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{error}: {said}{:?}", String::from_utf8_lossy(&output.stderr))
    });
    let code = output.status.code().unwrap();
    assert_eq!(report["exit_code"], code);
    (report["servers"][0].clone(), code)
}

/// The report of the rude server that behaves like this.
#[track_caller]
fn rude(options: &[&str], hows: &[&str]) -> (Value, i32) {
    let server = binaries().rude_server.display().to_string();
    let hows = hows.iter().flat_map(|how| how.split(' '));
    let words: Vec<_> = options.iter().copied().chain(["--", &server]).chain(hows).collect();
    report(&words)
}

/// The codes of what was found, of this severity at least.
fn codes(report: &Value, severities: &[&str]) -> Vec<String> {
    let found = report["findings"].as_array().unwrap().iter();
    let found = found.filter(|it| severities.contains(&it["severity"].as_str().unwrap()));
    found.map(|it| it["code"].as_str().unwrap().to_owned()).collect()
}

/// The finding of this code.
#[track_caller]
fn finding<'r>(report: &'r Value, code: &str) -> &'r Value {
    let found = report["findings"].as_array().unwrap();
    found.iter().find(|it| it["code"] == code).unwrap_or_else(|| panic!("no {code} in {report:#}"))
}

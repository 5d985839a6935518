//! How many processes a first call costs: one that is asked what the server offers, and the one that serves it.

use pontoon_tests::client::{Client, Era, Modern, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;
use tempfile::TempDir;

use super::SOON;
use crate::{plan, shell};

/// A server whose processes note that they were started, and whether that was before the first call, and then wait
/// until they may go on.
struct Counted {
    place: TempDir,
    rig: Rig,
}

impl Counted {
    /// What comes after the gate is open: `FIXTURE` stands for the well-behaved server.
    fn new(then: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let script = format!(
            r#"cd "{}" && {{ [ -e called ] && echo after || echo before; }} >> starts
until [ -e gate ]; do sleep 0.02; done
cd "$OLDPWD"
{then}"#,
            place.path().display()
        );
        let rig = plan([shell(&script, "stateless").that_may_fail()]).start();
        Self { place, rig }
    }

    /// How many were started before the first call was made, as far as that has come.
    fn starts(&self) -> usize {
        let starts = std::fs::read_to_string(self.place.path().join("starts")).unwrap_or_default();
        starts.lines().filter(|line| *line == "before").count()
    }

    fn open_gate(&self) {
        std::fs::write(self.place.path().join("gate"), "").unwrap();
    }

    /// Makes the first call.
    fn call(&self, era: Era) {
        let mut client = Client::new(era, &self.rig.endpoint("shell"));
        let called = self.place.path().join("called");
        let arguments = json!({"name": called, "text": "x"});
        let response = client.call(1, "write_file", arguments);
        assert!(called.exists(), "{}", response.text());
        client.end();
    }

    /// Makes the first call of a client that is there before any process may go on.
    #[track_caller]
    fn check_first_call(self, starts: usize) {
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| self.call(Era::Modern));
            wait_until("a learner and a head start", SOON, || self.starts() >= 2);
            self.open_gate();
            calling.join().unwrap();
        });
        assert_eq!(self.starts(), starts);
        self.rig.wait_for_state("shell", "ready");
        self.rig.stop();
    }
}

#[test]
fn a_first_call_starts_one_process_beside_its_own() {
    for era in ["legacy", "modern", "both"] {
        Counted::new(&format!("exec FIXTURE --era {era}")).check_first_call(2);
    }
}

/// The fixture, which ends if something else than `initialize` comes first.
const DIES: &str = r#"read -r first
case "$first" in
*initialize*) { printf '%s\n' "$first"; cat; } | FIXTURE --era legacy ;;
esac"#;

#[test]
fn a_server_that_dies_of_the_probe_is_learnt_by_another_process() {
    Counted::new(DIES).check_first_call(3);
}

/// The fixture, which refuses everything after something else than `initialize` came first.
const SULKS: &str = r#"read -r first
case "$first" in
*initialize*) { printf '%s\n' "$first"; cat; } | FIXTURE --era legacy ;;
*) while :; do
     id=$(printf '%s' "$first" | sed 's/.*"id":\([^,}]*\).*/\1/')
     printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"not initialized"}}\n' "$id"
     read -r first || exit 0
   done ;;
esac"#;

#[test]
fn a_server_that_the_probe_spoils_is_learnt_by_another_process() {
    Counted::new(SULKS).check_first_call(3);
}

/// The same, but it answers `initialize` even so and promises tools.
const PRETENDS: &str = r#"read -r first
case "$first" in
*initialize*) { printf '%s\n' "$first"; cat; } | FIXTURE --era legacy ;;
*) while :; do
     id=$(printf '%s' "$first" | sed 's/.*"id":\([^,}]*\).*/\1/')
     case "$first" in
     *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}\n' "$id" ;;
     *notifications*) ;;
     *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"not initialized"}}\n' "$id" ;;
     esac
     read -r first || exit 0
   done ;;
esac"#;

#[test]
fn what_a_process_refuses_that_the_probe_spoilt_is_asked_of_another() {
    Counted::new(PRETENDS).check_first_call(3);
}

#[test]
fn clients_of_both_eras_that_come_first_are_served_in_their_own() {
    for first in [Era::Modern, Era::Legacy] {
        let counted = Counted::new("exec FIXTURE --era both");
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| counted.call(first));
            wait_until("a learner and a head start", SOON, || counted.starts() >= 2);
            counted.open_gate();
            calling.join().unwrap();
        });
        counted.rig.wait_for_state("shell", "ready");
        let kept = std::fs::read_dir(counted.rig.directory().join("state/catalog")).unwrap();
        let kept = std::fs::read_to_string(kept.last().unwrap().unwrap().path()).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
        assert!(kept["modern"].is_object() && kept["legacy"].is_object(), "{kept}");
        let mut client = Modern::new(&counted.rig.endpoint("shell"));
        assert_eq!(client.call(1, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
        drop(client);
        counted.rig.stop();
    }
}

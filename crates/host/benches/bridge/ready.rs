//! How long a bridge takes from its start until it has listed its tools, beside an empty static process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::{Plan, Times, median, row, start};

const LIST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";

/// How many starts make a turn.
const STARTS: usize = 10;

/// Measures, and gives the longest of all but a hundredth of the starts.
pub(crate) fn measure(plan: &Plan) -> Duration {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let empty = build_empty(place.path());
    let schema = place.path().join("schema.json");
    let entry = r#"[{"name":"nothing","description":"","input_schema":{"type":"object"},"answers_by_id":true}]"#;
    std::fs::write(&schema, entry).unwrap();
    // There is no program: it is not needed for the list.
    let (socket, schema) = ("/nowhere.sock", schema.to_str().unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/bridge/python_bridge.py");
    let list = |program: &PathBuf, args: &[&str], times: &mut Times| {
        let mut child = None;
        times.take(|| {
            let mut started = start(program, args);
            started.stdin.as_mut().unwrap().write_all(LIST).unwrap();
            let mut line = String::new();
            BufReader::new(started.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert!(line.contains("\"nothing\""), "{line}");
            child = Some(started);
        });
        let mut child = child.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let [mut ours, mut floor, mut python] =
        [const { Vec::new() }; 3].map(|_: Vec<()>| Times::default());
    let mut ratios = Vec::new();
    for _ in 0..plan.turns {
        let (mut our_turn, mut floor_turn) = (Times::default(), Times::default());
        for _ in 0..STARTS {
            floor_turn.take(|| assert!(start(&empty, &[]).wait().unwrap().success()));
            list(&plan.pontoon, &["ipc", socket, schema], &mut our_turn);
        }
        ratios.push(our_turn.at(0.5).as_secs_f64() / floor_turn.at(0.5).as_secs_f64());
        ours.add(our_turn);
        floor.add(floor_turn);
        list(&"python3".into(), &[script, socket, schema], &mut python);
    }
    let goal = "<= 1.3 if it is static and not PIE";
    row("ready: p50", ours.at(0.5), Some(floor.at(0.5)), Some(median(ratios)), goal);
    row("ready: p99", ours.at(0.99), Some(floor.at(0.99)), None, "");
    let faster = python.at(0.5).as_secs_f64() / ours.at(0.5).as_secs_f64();
    let faster = format!("Python's over ours: {faster:.0}");
    row("ready, the Python bridge: p50", python.at(0.5), None, None, &faster);
    ours.at(0.99)
}

/// The floor: `fn main() {}`, linked as releases are.
fn build_empty(place: &Path) -> PathBuf {
    let (source, empty) = (place.join("empty.rs"), place.join("empty"));
    std::fs::write(&source, "fn main() {}").unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    let flags = ["-O", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    let built = rustc.args(flags).arg("-o").args([&empty, &source]).status().unwrap();
    assert!(built.success(), "the empty program could not be built");
    empty
}

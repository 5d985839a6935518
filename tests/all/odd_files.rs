//! Something else than a file where the bridge keeps or expects one: it neither hangs nor fills its memory, and
//! leaves no half of a file behind.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use pontoon_tests::rig::{bridge_command, wait_until};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;

use crate::{binaries, fixture, plan};

const SOON: Duration = Duration::from_secs(30);

/// Something else, and how to put it there.
type Odd = (&'static str, fn(&Path));

/// Every way to put something else there.
const ODD: [Odd; 5] = [
    ("a pipe", |path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap()),
    ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("an endless device", |path| symlink("/dev/zero", path).unwrap()),
    ("a folder", |path| fs::create_dir(path).unwrap()),
    ("a huge file", |path| File::create(path).unwrap().set_len(1 << 40).unwrap()),
];

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(path);
}

/// The one catalogue that is kept.
fn catalogue(state: &Path) -> PathBuf {
    let mut kept = fs::read_dir(state.join("catalog")).unwrap();
    kept.next().unwrap().unwrap().path()
}

/// Runs a command to its end, which has to come soon.
fn run(place: &Path, arguments: &[&str]) -> Output {
    let mut command = bridge_command(&binaries().pontoon, place);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let ended = pontoon_tests::rig::holds_within(SOON, || child.try_wait().unwrap().is_some());
    if !ended {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ended, "{arguments:?} hangs: {output:?}");
    output
}

#[test]
fn a_start_survives_whatever_has_the_name_of_a_catalogue() {
    let place = tempfile::tempdir().unwrap();
    let start = || {
        let output = run(place.path(), &["tools", "demo"]);
        assert!(output.status.success(), "{output:?}");
    };
    start();
    let kept = catalogue(&place.path().join("state"));
    for (what, put) in ODD {
        remove(&kept);
        put(&kept);
        start();
        let left = fs::read_dir(kept.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "{what}: no half of a catalogue is left");
        let is_file = fs::symlink_metadata(&kept).unwrap().is_file();
        assert_eq!(is_file, what != "a folder", "{what}: the next one takes its place");
    }
}

#[test]
fn a_reload_survives_whatever_has_the_name_of_a_catalogue() {
    let rig = plan([fixture("stateless")]).start();
    let kept = catalogue(&rig.directory().join("state"));
    for (at, (what, put)) in ODD.into_iter().enumerate() {
        remove(&kept);
        put(&kept);
        rig.write_config(&[fixture("stateless").with("timeout", 50 + at)]);
        rig.signal(Signal::HUP);
        let taken = || rig.log().matches("configuration taken over").count() > at;
        wait_until(&format!("a reload with {what}"), SOON, taken);
        rig.wait_for_state("fixture", "ready");
    }
    rig.stop();
}

#[test]
fn a_configuration_may_be_a_pipe_where_it_is_named_and_only_there() {
    let place = tempfile::tempdir().unwrap();
    let named = place.path().join("servers");
    mkfifoat(CWD, &named, Mode::RUSR | Mode::WUSR).unwrap();
    let output = std::thread::scope(|scope| {
        scope
            .spawn(|| fs::write(&named, "{\"mcpServers\": {\"a\": {\"command\": \"/bin/true\"}}}"));
        run(place.path(), &["check", "--config", named.to_str().unwrap()])
    });
    assert!(output.status.success(), "{output:?}");
    for (what, put) in ODD {
        let found = place.path().join("mcp-servers.json");
        put(&found);
        let output = run(place.path(), &["check"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("cannot be read"), "{what}: {output:?}");
        remove(&found);
    }
    let output = run(place.path(), &["check", "--config", "/dev/zero"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot read `/dev/zero`: it is longer than 16777216 bytes"), "{said}");
}

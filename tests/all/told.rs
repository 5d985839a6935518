//! What clients are told when a server does not start or dies: what happened and what to do, but not where
//! things lie on this machine. The log and `/health` have that.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pontoon_tests::client::{Legacy, Modern, Response, Speaker};
use pontoon_tests::program;
use pontoon_tests::rig::{Rig, Server};
use serde_json::json;

use crate::{binaries, plan};

/// What nobody is told: any of these names a folder of this machine.
fn folders(rig: &Rig, place: &Path) -> Vec<String> {
    let programs = binaries().fixture_server.parent().unwrap().display().to_string();
    let own = [rig.directory(), place].map(|path| path.display().to_string());
    let known = ["/nowhere", "/tmp", "/usr", "/bin/", ".sessions"].map(str::to_owned);
    own.into_iter().chain(known).chain([programs]).collect()
}

#[track_caller]
fn check(response: &Response, rig: &Rig, place: &Path, told: &str) {
    let text = response.text();
    assert!(response.status() == 502 || response.answer()["error"].is_object(), "{text}");
    assert!(text.contains(told), "{told:?} is not told: {text}");
    for folder in folders(rig, place) {
        assert!(!text.contains(&folder), "{folder} is told: {text}");
    }
}

/// What a client of each era hears that comes to a server which never started.
fn ask(rig: &Rig, server: &str) -> [Response; 2] {
    let endpoint = rig.endpoint(server);
    let legacy = Legacy::initialize(&endpoint, "2025-06-18", &json!({}));
    [legacy, Modern::new(&endpoint).call(1, "echo", json!({"text": "x"}))]
}

fn server(name: &str, command: &Path, arguments: &[&str]) -> Server {
    Server::new(name, command, arguments).that_may_fail()
}

#[test]
fn a_server_that_never_started_is_told_without_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("plain.txt"), "").unwrap();
    program::script(&path("lost.sh"), "exit 1");
    fs::write(path("lost.sh"), "#!/nowhere/python\n").unwrap();
    fs::set_permissions(path("lost.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let sh = Path::new("/bin/sh");
    let dying = "echo \"cannot read /nowhere/secret.conf in $PWD ($TMPDIR)\" >&2; exit 3";
    let confined = json!({"level": "confined", "read": [path("gone")], "best_effort": true});
    let servers = [
        server("missing", Path::new("/nowhere/at-all"), &[]),
        server("unknown", Path::new("gone-7"), &[]),
        server("plain", &path("plain.txt"), &[]),
        server("lost", &path("lost.sh"), &[]),
        server("dying", sh, &["-c", dying]),
        server("walled", &binaries().fixture_server, &[]).with("isolation", confined),
    ];
    let rig = plan(servers).start();
    let told = [
        (
            "missing",
            "the program `at-all` was not found; whoever runs the bridge has to install it",
        ),
        ("unknown", "the program `gone-7` was not found; whoever runs"),
        ("plain", "`plain.txt` is not an executable file; whoever runs"),
        (
            "lost",
            "`lost.sh` could not be executed: its first line names the interpreter \\\"python\\\", which",
        ),
        ("dying", "cannot read secret.conf in "),
        ("walled", "`gone`, which `fixture-server` may reach, could not be opened"),
    ];
    for (name, told) in told {
        rig.wait_for_state(name, "failed");
        for response in ask(&rig, name) {
            check(&response, &rig, place.path(), told);
        }
    }
    let health = rig.health().to_string();
    assert!(health.contains("/nowhere/at-all") && health.contains("/nowhere/secret.conf"));
    assert!(rig.log().contains("/nowhere/at-all") && rig.log().contains("/nowhere/secret.conf"));
    rig.stop();
}

#[test]
fn a_server_that_breaks_later_is_told_without_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let cwd = place.path().join("cwd");
    fs::create_dir(&cwd).unwrap();
    let fixture = program::copy(&binaries().fixture_server, &place.path().join("fixture"));
    let script = format!(
        "test -e {} || {{ echo \"gone: $PWD/x.conf\" >&2; exit 9; }}; exec {}",
        place.path().join("works").display(),
        binaries().fixture_server.display()
    );
    fs::write(place.path().join("works"), "").unwrap();
    let servers = [
        Server::new("removed", &fixture, &[]),
        Server::new("elsewhere", &binaries().fixture_server, &[])
            .with("cwd", cwd.to_str().unwrap()),
        Server::new("dying", Path::new("/bin/sh"), &["-c", &script]),
    ];
    let rig = plan(servers).start();
    fs::remove_file(&fixture).unwrap();
    fs::remove_dir(&cwd).unwrap();
    fs::remove_file(place.path().join("works")).unwrap();
    let told = [
        ("removed", "the program `fixture` was not found; whoever runs the bridge"),
        ("elsewhere", "`cwd` could not be entered to run `fixture-server`: No such file"),
        ("dying", "gone: x.conf"),
    ];
    for (name, told) in told {
        let endpoint = rig.endpoint(name);
        let mut legacy = Legacy::open(&endpoint);
        let arguments = json!({"text": "x"});
        check(&legacy.call(1, "echo", arguments.clone()), &rig, place.path(), told);
        legacy.end();
        check(&Modern::new(&endpoint).call(1, "echo", arguments), &rig, place.path(), told);
    }
    assert!(rig.log().contains(cwd.to_str().unwrap()), "the log has it all");
    rig.stop();
}

/// Also of one that died in the middle of a call.
#[test]
fn last_words_are_told_without_a_folder() {
    let place = tempfile::tempdir().unwrap();
    let words = "at /nowhere/lib/tool.py, in $PWD/a.txt and file:///usr/lib/x.mjs:3";
    for mode in ["stateless", "stateful"] {
        let script = format!("echo \"{words}\" >&2; exec {}", binaries().fixture_server.display());
        let server =
            Server::new("shell", Path::new("/bin/sh"), &["-c", &script]).with("mode", mode);
        let rig = plan([server]).start();
        let told = "at tool.py, in a.txt and x.mjs:3";
        let endpoint = rig.endpoint("shell");
        let mut legacy = Legacy::open(&endpoint);
        check(&legacy.call(1, "crash", json!({})), &rig, place.path(), told);
        legacy.end();
        let mut modern = Modern::with(&endpoint, &[("X-Session-Id", "one")]);
        check(&modern.call(1, "crash", json!({})), &rig, place.path(), told);
        rig.stop();
    }
}

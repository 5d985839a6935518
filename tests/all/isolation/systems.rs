//! Systems that cannot give what was asked for: that is told at the start, or in the log and in
//! `/health` where less will do. And what a bridge that is not root can give.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pontoon_tests::program;
use pontoon_tests::rig::{Binaries, Plan, bridge_command, wait_until};
use serde_json::{Value, json};

use super::{ADA, Place, UNSEEN, attempt, check, is_root, outcomes};
use crate::binaries;

/// `landlock_create_ruleset`, which has the same number everywhere.
const LANDLOCK: &str = "444";
/// `seccomp`.
const SECCOMP: &str = if cfg!(target_arch = "x86_64") { "317" } else { "277" };

/// A program that runs the bridge in some other way. `PONTOON` stands for it, and its arguments follow.
fn bridge_by(place: &Place, script: &str) -> PathBuf {
    let path = place.path("bridge.sh");
    let pontoon = place.program(&binaries().pontoon).display().to_string();
    let script = script.replace("PONTOON", &format!("'{pontoon}' \"$@\""));
    program::script(&path, &script)
}

/// The bridge on a kernel without these calls.
fn without(place: &Place, calls: &str) -> PathBuf {
    let without = Path::new(env!("CARGO_BIN_EXE_without")).display();
    bridge_by(place, &format!("exec '{without}' {calls} PONTOON"))
}

/// The bridge as a user without any rights, to whom the rig's folder is given.
pub(super) fn unprivileged(place: &Place) -> PathBuf {
    if !is_root() {
        return bridge_by(place, "exec PONTOON");
    }
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    bridge_by(place, &format!("chown -R 65534:65534 \"$HOME\" && exec {nobody} PONTOON"))
}

pub(super) fn with_bridge(plan: Plan, pontoon: PathBuf) -> Plan {
    Plan { binaries: Binaries { pontoon, ..plan.binaries }, ..plan }
}

/// What a bridge that does not start says to this isolation, in one line.
fn refusal(pontoon: &Path, isolation: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp-servers.json");
    let server = json!({"command": "/bin/true", "isolation": isolation});
    fs::write(&config, json!({"mcpServers": {"slides": server}}).to_string()).unwrap();
    let mut command = bridge_command(pontoon, folder.path());
    let command = command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !said.contains("listening"), "{isolation}: {said}");
    said
}

#[test]
fn a_kernel_that_lacks_something_is_told_before_anything_starts() {
    let place = Place::new();
    let landlock = without(&place, LANDLOCK);
    for level in ["confined", "user"] {
        let said = refusal(&landlock, &json!(level));
        assert!(
            said.contains(
                "this system cannot keep it to its files for the server `slides`: it needs Linux \
                 6.2 or newer with Landlock (ABI 3) enabled at boot; or allow less with \
                 \"isolation\": {\"best_effort\": true}"
            ),
            "{said}"
        );
    }
    let said = refusal(&without(&place, SECCOMP), &json!("confined"));
    assert!(said.contains("cannot refuse it dangerous system calls"), "{said}");
    assert!(said.contains("it needs a Linux kernel with seccomp filters"), "{said}");
}

#[test]
fn where_less_will_do_it_is_told_in_the_log_and_by_health() {
    let place = Place::new();
    for (calls, wanted, reached, told) in [
        (LANDLOCK, "confined", "basic", "keep it to its files"),
        (LANDLOCK, "user", "basic", "keep it to its files"),
        (SECCOMP, "confined", "basic", "refuse it dangerous system calls"),
    ] {
        let isolation = json!({"level": wanted, "best_effort": true});
        let plan = place.plan([place.rude(isolation).with("mode", "stateless")]);
        let rig = with_bridge(plan, without(&place, calls)).start();
        let less = "less isolation than asked for";
        wait_until("it is told", Duration::from_secs(5), || rig.log().contains(less));
        let log = rig.log();
        let line = log.lines().find(|line| line.contains(less)).unwrap();
        assert!(line.contains("WARN") && line.contains(told) && line.contains("rude"), "{line}");
        assert_eq!(rig.health()["servers"]["rude"]["isolation"], reached, "{wanted}");
        let page = rig.get("/metrics").text();
        let sample = format!(r#"pontoon_isolation_info{{server="rude",level="{reached}"}} 1"#);
        assert!(page.contains(&sample), "{page}");
        // What the system can give is given.
        let heard = outcomes(&attempt(&rig, ADA, &[&["status", "Uid"]]));
        let is_other = heard[0].split(' ').next() != Some("0");
        assert_eq!(is_other, wanted == "user" || !is_root(), "{heard:?}");
        rig.stop();
    }
}

#[test]
fn where_all_is_given_nothing_is_told() {
    let place = Place::new();
    let isolation = json!({"level": "confined", "best_effort": true});
    let rig = place.plan([place.rude(isolation).with("mode", "stateless")]).start();
    assert!(!rig.log().contains("less isolation"), "{}", rig.log());
    assert_eq!(rig.health()["servers"]["rude"]["isolation"], "confined");
    rig.stop();
}

#[test]
fn users_of_their_own_need_root_and_that_is_told() {
    let place = Place::new();
    let pontoon = unprivileged(&place);
    let said = refusal(&pontoon, &json!("user"));
    assert!(said.contains("cannot run it as a user of its own for the server `slides`"), "{said}");
    assert!(said.contains("it needs a start as root"), "{said}");
    let said = refusal(&pontoon, &json!({"level": "confined", "processes": 20}));
    assert!(said.contains("cannot limit its processes for the server `slides`"), "{said}");
    assert!(said.contains("it needs a writable pids cgroup, or a user of its own"), "{said}");
}

#[test]
fn a_bridge_that_is_not_root_keeps_its_servers_just_as_well() {
    let place = Place::new();
    let rude = |name: &str, isolation: Value| {
        let server = place.rude(isolation).with("mode", "stateless");
        pontoon_tests::rig::Server { name: name.to_owned(), ..server }
    };
    let walled = json!({"level": "confined", "network": "none", "memory": "256MiB"});
    let fewer = json!({"level": "user", "best_effort": true});
    let servers = [rude("rude", walled), rude("fewer", fewer), rude("basic", json!("basic"))];
    let plan = place.plan(servers).variable("MCPO_JOBS_DIR", "jobs");
    let rig = with_bridge(plan, unprivileged(&place)).start();
    let health = rig.health();
    assert_eq!(health["servers"]["rude"]["isolation"], "confined", "{health}");
    assert_eq!(health["servers"]["fewer"]["isolation"], "confined", "{health}");
    let helper = rig.descendants().into_iter().find(|it| it.parent == rig.pid()).unwrap().pid;
    let config = rig.directory().join("mcp-servers.json").display().to_string();
    let bridge = rig.address().to_string();
    check(
        &rig,
        ADA,
        &[
            (&["status", "CapEff"], "0000000000000000"),
            (&["create", "own"], "ok"),
            (&["read", "/proc/self/maps"], "ok"),
            (&["read", &config], "EACCES"),
            (&["list", ".."], "EACCES"),
            (&["create", "../planted"], "EACCES|EROFS"),
            (&["connect", &bridge], "ECONNREFUSED|EAFNOSUPPORT|EACCES"),
        ],
    );
    for pid in [rig.pid(), helper] {
        let (environ, mem) = (format!("/proc/{pid}/environ"), format!("/proc/{pid}/mem"));
        let pid = pid.to_string();
        // Of the same user, and at `basic` nothing but the hardening of the bridge is in the way.
        for server in ["rude", "basic"] {
            let acts: [&[&str]; 4] =
                [&["read", &environ], &["open", &mem], &["trace", &pid], &["peek", &pid]];
            let mut client = super::client(&rig, server, ADA);
            let response = pontoon_tests::client::Speaker::call(
                &mut client,
                1,
                "attempt",
                json!({"acts": acts}),
            );
            let heard = outcomes(&response);
            assert!(heard.iter().all(|it| UNSEEN.split('|').any(|no| no == it)), "{heard:?}");
        }
        check(&rig, ADA, &[(&["kill", &pid], "EPERM")]);
    }
    rig.stop();
}

#[test]
fn a_place_that_other_users_cannot_pass_is_told() {
    if !is_root() {
        return println!("skipped: only root gives users");
    }
    let place = Place::new();
    let rude = place.rude("user").with("mode", "stateless").that_may_fail();
    let shut = place.path("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
    let jobs = shut.join("jobs").display().to_string();
    let rig = place.plan([rude]).variable("MCPO_JOBS_DIR", &jobs).start();
    rig.wait_for_state("rude", "failed");
    let told = rig.health()["servers"]["rude"].to_string();
    assert!(told.contains("ermission denied") && told.contains("/jobs/"), "{told}");
    rig.stop();
}

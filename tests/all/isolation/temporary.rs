//! Temporary files: every child has a folder of its own for them, with a path so short that a socket
//! can be made in it, and it goes with its child.

use super::*;

/// The folder that a process of this server has for its temporary files, and what it tells of it.
fn temporary(rig: &Rig, server: &str, headers: Headers<'_>) -> (PathBuf, Value) {
    let mut client = client(rig, server, headers);
    let mut tell = |tool: &str| -> Value {
        let response = client.call(1, tool, json!({}));
        let text = response.tool_text().unwrap_or_else(|| panic!("{}", response.text()));
        serde_json::from_str(&text).unwrap()
    };
    let folder = tell("folder");
    let environment = tell("environment");
    (environment["TMPDIR"].as_str().unwrap().into(), folder)
}

/// A jobs directory with a path of this length at the least.
fn jobs(place: &Place, length: usize) -> PathBuf {
    let mut jobs = place.path("jobs");
    while jobs.as_os_str().len() < length {
        jobs.push("another-folder");
    }
    jobs
}

#[test]
fn a_browser_can_make_its_socket_in_every_mode_at_every_level_and_with_any_jobs_directory() {
    for level in levels() {
        for length in [0, 90] {
            let place = Place::new();
            let jobs = jobs(&place, length);
            let fixture = |name: &str, mode: &str| {
                let fixture = place.fixture(level).with("mode", mode);
                Server { name: name.to_owned(), ..fixture }
            };
            let mut servers = vec![
                fixture("stateless", "stateless"),
                fixture("session", "stateless").with("workspace", "session"),
                fixture("stateful", "stateful"),
            ];
            if level != "user" {
                servers.push(fixture("spare", "stateless").with("warm", 1));
            }
            let names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
            let plan = place.plan(servers).variable("MCPO_JOBS_DIR", &jobs.display().to_string());
            let rig = plan.start();
            let mut bases = std::collections::HashSet::new();
            for name in &names {
                let (path, told) = temporary(&rig, name, ADA);
                let what = format!("{name}, {level}, {length}: {} {told}", path.display());
                assert_eq!(
                    (&told["tmp"], &told["socket"]),
                    (&json!("writable"), &json!("bound")),
                    "{what}"
                );
                assert!(!path.starts_with(told["cwd"].as_str().unwrap()), "{what}");
                assert_eq!(told["names"], json!([]), "{what}");
                bases.insert(path.parent().unwrap().to_owned());
                if name != "stateful" {
                    wait_until("the folder is gone with its child", SOON, || !path.exists());
                    continue;
                }
                // Children of chats at the same time have one each, and only they.
                let (other, _) = temporary(&rig, name, BEN);
                assert_ne!(path, other);
                let mode = fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o700, "{what}");
            }
            assert_eq!(bases.len(), 1, "{bases:?}");
            rig.stop();
            assert!(bases.iter().all(|base| !base.exists()), "{bases:?}");
        }
    }
}

#[test]
fn a_walled_child_reaches_no_temporary_files_of_another() {
    for level in walled() {
        for length in [0, 90] {
            let place = Place::new();
            let jobs = jobs(&place, length);
            // Even one that may read where all of them are.
            let rude = place.rude(json!({"level": level, "read": ["/tmp"]}));
            let kept = place.fixture(level).with("mode", "stateful");
            let plan = place.plan([rude.with("mode", "stateful"), kept]);
            let rig = plan.variable("MCPO_JOBS_DIR", &jobs.display().to_string()).start();
            let (path, _) = temporary(&rig, "fixture", BEN);
            let socket = path.join(".org.chromium.Chromium.XXXXXX");
            let (socket, new) = (socket.display().to_string(), path.join("new"));
            let (path, new) = (path.display().to_string(), new.display().to_string());
            let acts: [Attempt<'_>; 3] = [
                (&["list", &path], REFUSED),
                (&["list", &socket], REFUSED),
                (&["create", &new], REFUSED),
            ];
            check(&rig, ADA, &acts);
            rig.stop();
        }
    }
}

#[test]
fn what_a_tool_calls_tmp_harms_nothing() {
    let plants = ["ln -s /etc .tmp", "ln -s .tmp .tmp", "touch .tmp", "mkdir -m 0 .tmp"];
    for level in levels() {
        for mode in ["stateless", "stateful"] {
            for plant in plants {
                let place = Place::new();
                let programs = place.path("programs");
                let fixture = match level {
                    "basic" => place.fixture(level),
                    _ => place.fixture(json!({"level": level, "read": [programs]})),
                };
                // Each process of the chat plants it before it serves.
                let script = format!("rm -rf .tmp; {plant}; exec {}", fixture.command.display());
                let server = Server {
                    command: "/bin/sh".into(),
                    args: vec!["-c".to_owned(), script],
                    ..fixture.with("mode", mode).with("workspace", "session")
                };
                let rig = place.plan([server]).start();
                for _ in 0..2 {
                    let (path, told) = temporary(&rig, "fixture", ADA);
                    let what = format!("{plant}, {level}, {mode}: {} {told}", path.display());
                    assert_eq!(told["socket"], json!("bound"), "{what}");
                }
                rig.stop();
            }
        }
    }
}

#[test]
fn what_a_killed_bridge_left_goes_with_the_next_start() {
    for length in [0, 90] {
        let place = Place::new();
        let jobs = jobs(&place, length).display().to_string();
        // Of these bridges alone: any other that starts would sweep here, too.
        let own = tempfile::Builder::new().prefix("t").rand_bytes(4).tempdir().unwrap();
        let tmp = own.path().display().to_string();
        let start = || {
            let kept = place.fixture("basic").with("mode", "stateful");
            let plan = place.plan([kept]).variable("MCPO_JOBS_DIR", &jobs);
            plan.variable("TMPDIR", &tmp).start()
        };
        let (killed, beside) = (start(), start());
        let (left, _) = temporary(&killed, "fixture", ADA);
        let (used, _) = temporary(&beside, "fixture", BEN);
        killed.kill_9();
        assert!(left.exists(), "or this shows nothing");
        let next = start();
        wait_until("it is swept", SOON, || !left.parent().unwrap().exists());
        assert!(used.is_dir(), "another bridge uses it");
        next.stop();
        beside.stop();
    }
}

//! Learning what servers offer: in the order that clients want it, and again where it failed.

mod first_calls;
mod people;
mod starts;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Speaker};
use pontoon_tests::rig::{Rig, Server, wait_until};
use serde_json::json;

use crate::{binaries, plan, rig, shell};

const SOON: Duration = Duration::from_secs(60);

/// Waits until the bridge has logged this.
fn wait_for_log(rig: &Rig, part: &str) {
    wait_until(part, SOON, || rig.log().contains(part));
}

fn state(rig: &Rig, server: &str) -> String {
    rig.health()["servers"][server]["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn servers_that_hang_or_are_missing_delay_no_other() {
    let sleep = |name: &str| Server::new(name, Path::new("/bin/sleep"), &["600"]);
    let missing = |name: &str| Server::new(name, Path::new("/nowhere/program"), &[]);
    let good = |name: &str| Server::new(name, &binaries().fixture_server, &[]);
    // Whichever way they are sorted, some that hang come before some that work.
    let hanging: Vec<_> = (0..10).map(|n| format!("{}-hangs-{n}", ["a", "z"][n % 2])).collect();
    let gone: Vec<_> = (0..5).map(|n| format!("m-gone-{n}")).collect();
    let working: Vec<_> = (0..15).map(|n| format!("m-works-{n}")).collect();
    let mut servers: Vec<_> = hanging.iter().map(|name| sleep(name)).collect();
    servers.extend(gone.iter().map(|name| missing(name)));
    servers.extend(working.iter().map(|name| good(name)));
    let rig = rig(servers.into_iter().map(Server::that_may_fail));
    for name in &gone {
        let response = Modern::new(&rig.endpoint(name)).call(1, "echo", json!({"text": "x"}));
        assert!(response.text().contains("was not found"), "{}", response.text());
    }
    for name in &working {
        let response = Modern::new(&rig.endpoint(name)).call(1, "echo", json!({"text": "x"}));
        assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    }
    for name in &hanging {
        assert_eq!(state(&rig, name), "learning", "or this shows nothing");
    }
    rig.stop();
}

#[test]
fn a_program_that_is_installed_later_is_found_by_the_next_try() {
    for level in ["basic", "confined"] {
        let place = tempfile::tempdir().unwrap();
        let bin = place.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let server = Server::new("later", Path::new("a-server-of-tomorrow"), &[]);
        let server = server.with("env", json!({"PATH": path})).with("isolation", level);
        let rig = plan([server.with("warm", 1).that_may_fail()]).start();
        rig.wait_for_state("later", "failed");
        let program = bin.join("a-server-of-tomorrow");
        std::fs::copy(binaries().fixture_server, place.path().join("whole")).unwrap();
        std::fs::rename(place.path().join("whole"), &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        wait_until("it is found", SOON, || state(&rig, "later") == "ready");
        let mut client = Modern::new(&rig.endpoint("later"));
        let response = client.call(1, "echo", json!({"text": "x"}));
        assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
        let has_spare = || rig.health()["servers"]["later"]["spares"].as_u64() >= Some(1);
        wait_until("it has spares, too", SOON, has_spare);
        drop(client);
        rig.stop();
    }
}

/// The fixture answers `initialize`; what comes first else is not answered, as by a slow one.
const SILENT: &str = r#"read -r first
case "$first" in
*initialize*) { printf '%s\n' "$first"; cat; } | FIXTURE --era legacy ;;
*) sleep 600 ;;
esac"#;

#[test]
fn a_legacy_client_does_not_wait_for_the_other_era() {
    let rig = rig([shell(SILENT, "stateless").that_may_fail()]);
    let mut client = Legacy::open(&rig.endpoint("shell"));
    let response = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    assert_eq!(state(&rig, "shell"), "learning", "or this shows nothing");
    client.end();
    rig.stop();
}

#[test]
fn a_notification_reaches_its_process_while_the_other_era_is_learnt() {
    let heard = tempfile::NamedTempFile::new().unwrap();
    let script = SILENT.replace("cat;", r#"tee -a "$HEARD";"#);
    let server = shell(&script, "stateful").with("env", json!({"HEARD": heard.path()}));
    let rig = rig([server.that_may_fail()]);
    let mut client = Legacy::open(&rig.endpoint("shell"));
    let response = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    let note = "notifications/roots/list_changed";
    client.notify(note, &json!({}));
    assert_eq!(state(&rig, "shell"), "learning", "or this shows nothing");
    let is_heard = || std::fs::read_to_string(heard.path()).unwrap().contains(note);
    wait_until("it is heard", SOON, is_heard);
    client.end();
    rig.stop();
}

#[test]
fn an_era_that_was_not_heard_is_not_stored_and_is_told() {
    let rig = rig([shell(SILENT, "stateless")]);
    wait_for_log(&rig, "an era of the server is not known");
    let kept = std::fs::read_dir(rig.directory().join("state/catalog"));
    assert!(kept.is_err() || kept.unwrap().next().is_none(), "nothing is stored");
    let mut client = Modern::new(&rig.endpoint("shell"));
    let response = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    drop(client);
    rig.stop();
}

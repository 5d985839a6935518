//! A user of the system for each chat: who that is, and that files come back all the same.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use pontoon_tests::client::Speaker;
use pontoon_tests::rig::{Rig, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    ADA, BEN, CHAT, Headers, Place, SOON, USER, attempt, check, client, is_root, outcomes, walled,
};

/// The user that somebody's process runs as. It is its only one, and so is its group.
#[track_caller]
fn user(rig: &Rig, headers: Headers<'_>) -> u32 {
    let acts: [&[&str]; 4] =
        [&["status", "Uid"], &["status", "Gid"], &["status", "Groups"], &["status", "CapEff"]];
    let heard = outcomes(&attempt(rig, headers, &acts));
    let ids: HashSet<_> = heard[0].split(' ').chain(heard[1].split(' ')).collect();
    assert_eq!(ids.len(), 1, "{heard:?}");
    assert_eq!((heard[2].as_str(), heard[3].as_str()), ("", "0000000000000000"), "{heard:?}");
    ids.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn each_chat_is_a_user_of_its_own_and_stays_it() {
    if !is_root() {
        return println!("skipped: only root gives users");
    }
    for mode in ["stateless", "stateful"] {
        let place = Place::new();
        let rude = || {
            let rude = place.rude("user").with("mode", mode).with("workspace", "session");
            if mode == "stateful" { rude.with("idle_timeout", 1) } else { rude }
        };
        let rig = place.plan([rude()]).start();
        let ours = fs::metadata(format!("/proc/{}", rig.pid())).unwrap().uid();
        let chats: [Headers<'_>; 3] = [ADA, BEN, &[(USER, "ada"), (CHAT, "c2")]];
        let users: Vec<_> = chats.iter().map(|chat| user(&rig, chat)).collect();
        let different: HashSet<_> = users.iter().chain([&ours, &0]).collect();
        assert_eq!(different.len(), chats.len() + if ours == 0 { 1 } else { 2 }, "{users:?}");
        // Also with another process.
        rig.wait_for_children(0);
        assert_eq!(chats.map(|chat| user(&rig, chat)).to_vec(), users);
        assert_eq!(rig.health()["servers"]["rude"]["isolation"], "user");
        // A process that ends with its bridge takes its state along, and that would be told.
        rig.wait_for_children(0);
        rig.stop();
        // And with another bridge.
        let rig = place.plan([rude()]).start();
        assert_eq!(chats.map(|chat| user(&rig, chat)).to_vec(), users);
        rig.stop();
    }
}

#[test]
fn each_request_without_a_chat_is_a_user_of_its_own() {
    if !is_root() {
        return println!("skipped: only root gives users");
    }
    let place = Place::new();
    let rig = place.plan([place.rude("user").with("mode", "stateless")]).start();
    let users: HashSet<_> = (0..5).map(|_| user(&rig, ADA)).collect();
    assert_eq!(users.len(), 5, "{users:?}");
    rig.stop();
}

/// Writes a file through a tool, and fetches it.
#[track_caller]
fn write_and_fetch(rig: &Rig, name: &str, text: &str) {
    let arguments = json!({"name": name, "text": text});
    let response = client(rig, "fixture", ADA).call(1, "write_file", arguments);
    let link = response.head.header("link").unwrap_or_else(|| panic!("{response:?}"));
    let start = link.find("/files/").unwrap_or_else(|| panic!("{link}"));
    let path = link[start..].split('>').next().unwrap();
    let fetched = rig.get(path);
    assert_eq!((fetched.status(), fetched.text().as_str()), (200, text), "{path}");
}

#[test]
fn files_come_back_and_stay_for_the_chat() {
    for level in walled() {
        for (mode, workspace, warm) in [
            ("stateless", "job", 0),
            ("stateless", "job", 1),
            ("stateless", "session", 0),
            ("stateful", "session", 0),
        ] {
            let place = Place::new();
            let fixture = place.fixture(level).with("mode", mode).with("workspace", workspace);
            let fixture = match mode {
                "stateful" => fixture.with("idle_timeout", 1),
                _ => fixture.with("warm", warm),
            };
            if warm > 0 && level == "user" {
                continue;
            }
            let rig = place.plan([fixture]).start();
            write_and_fetch(&rig, "資料.txt", "first");
            rig.wait_for_children(warm);
            write_and_fetch(&rig, "second.txt", "second");
            let folder = client(&rig, "fixture", ADA).call(1, "folder", json!({}));
            let folder: Value = serde_json::from_str(&folder.tool_text().unwrap()).unwrap();
            let names = folder["names"].as_array().unwrap().iter().filter_map(Value::as_str);
            let names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
            let kept =
                if workspace == "session" { vec!["second.txt", "資料.txt"] } else { vec![] };
            assert_eq!(names, kept, "{level} {mode} {workspace}");
            assert_eq!(folder["tmp"], "writable", "{level} {mode} {workspace}");
            rig.stop();
        }
    }
}

#[test]
fn a_workspace_goes_along_when_its_server_becomes_another_user() {
    let place = Place::new();
    for level in ["basic", "confined", "user", "confined"] {
        if level == "user" && !is_root() {
            continue;
        }
        let rude = place.rude(level).with("mode", "stateful").with("idle_timeout", 1);
        let rig = place.plan([rude]).start();
        let name = format!("of-{level}");
        attempt(&rig, ADA, &[&["create", &name]]);
        check(&rig, ADA, &[(&["write", "of-basic"], "ok"), (&["write", &name], "ok")]);
        // A process that ends with its bridge takes its state along, and that would be told.
        rig.wait_for_children(0);
        rig.stop();
    }
}

#[test]
fn a_server_that_becomes_one_of_many_users_while_the_bridge_runs_reaches_its_files() {
    if !is_root() {
        return println!("skipped: only root gives users");
    }
    let place = Place::new();
    let server = |level: &str| place.fixture(level).with("workspace", "session");
    let rig = place.plan([server("confined")]).start();
    write_and_fetch(&rig, "first.txt", "first");
    rig.write_config(&[server("user")]);
    rig.signal(Signal::HUP);
    wait_until("it is taken over", SOON, || {
        rig.health()["servers"]["fixture"]["isolation"] == "user"
    });
    write_and_fetch(&rig, "second.txt", "second");
    write_and_fetch(&rig, "first.txt", "first, and more");
    rig.stop();
}

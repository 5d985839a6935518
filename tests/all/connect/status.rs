//! `pontoon status`: the bridges of a user that run, as their user sees them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pontoon_tests::carried::CarriedServer;
use pontoon_tests::client::{Modern, Speaker};
use pontoon_tests::live_app::{Deeds, LiveApp, Manner};
use pontoon_tests::metrics::Page;
use pontoon_tests::rig::{Server, holds_within, send_signal, wait_until};
use pontoon_tests::stdio::StdioServer;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Home, SOON, app, text};
use crate::{binaries, fixture, plan};

/// What `pontoon status` says to the user with this home: its exit code and its words.
#[expect(clippy::disallowed_methods, reason = "a person starts it so, and it ends by itself")]
fn status(home: &Path, options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(&binaries().pontoon);
    let output =
        command.arg("status").args(options).env_clear().env("HOME", home).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// The same as JSON.
fn bridges(home: &Path) -> Vec<Value> {
    let (_, text) = status(home, &["--json"]);
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

impl Home {
    /// The one bridge that runs.
    fn only(&self) -> Value {
        let [bridge] = <[Value; 1]>::try_from(bridges(self.0.path())).unwrap();
        bridge
    }

    /// The same, once it is as `fits` says.
    fn only_when(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, SOON, || fits(&self.only()));
        self.only()
    }

    fn status_folder(&self) -> PathBuf {
        self.0.path().join(".local/state/pontoon/status")
    }

    fn status_files(&self) -> usize {
        fs::read_dir(self.status_folder()).map_or(0, Iterator::count)
    }
}

fn is_in(state: &'static str) -> impl Fn(&Value) -> bool {
    move |bridge| bridge["state"] == state
}

#[test]
fn a_bridge_is_found_while_its_application_is_away_and_not_when_it_has_ended() {
    let home = Home::new();
    assert_eq!(status(home.0.path(), &[]), (Some(0), "no bridge of this user runs\n".to_owned()));
    let client = home.client("ws://127.0.0.1:1", &["--connect-wait", "300ms"]);
    let away = home.only_when("the application is known to be away", is_in("away"));
    assert_eq!((&away["kind"], &away["pid"]), (&json!("connect"), &json!(client.pid())));
    assert_eq!(away["address"], "ws://127.0.0.1:1/");
    assert!(away["why"].as_str().unwrap().contains("refused"), "{away}");
    assert!(away["advice"].as_str().unwrap().contains("start the application"), "{away}");
    assert_eq!((&away["answers"], &away["connections"]), (&json!(true), &json!(0)));
    assert_eq!(away["program"]["on_disk"], "same");
    assert_eq!(away["version"], env!("CARGO_PKG_VERSION"));
    for member in ["started", "uptime", "since", "era", "through", "round_trip_ms", "clients"] {
        assert!(away.get(member).is_some(), "{member}: {away}");
    }
    let (code, table) = status(home.0.path(), &[]);
    assert!(table.contains("away for") && !table.contains('\u{1b}'), "{table}");
    assert_eq!((code, table.lines().next().unwrap().contains("WAITING")), (Some(0), true));
    let (code, one) = status(home.0.path(), &["--json", &client.pid().to_string()]);
    assert!(code == Some(0) && one.contains("127.0.0.1:1"), "{one}");
    assert_eq!(status(home.0.path(), &["--json", "1"]), (Some(1), "[]\n".to_owned()));
    let modes = [(home.status_folder(), 0o700)].into_iter();
    let files =
        fs::read_dir(home.status_folder()).unwrap().map(|file| (file.unwrap().path(), 0o600));
    for (path, mode) in modes.chain(files) {
        let status = fs::metadata(&path).unwrap();
        assert_eq!(status.permissions().mode() & 0o777, mode, "{}", path.display());
    }
    home.finish(client);
    assert_eq!((bridges(home.0.path()), home.status_files()), (Vec::new(), 0));
}

#[test]
fn what_happens_to_a_connection_is_seen() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let first = app(&deeds);
    let (url, place) = (first.url(), first.place());
    let mut client = home.client(&url, &[]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    let up = home.only_when("the call is counted", |it| it["calls"]["made"] == 1);
    assert_eq!((&up["state"], &up["era"]), (&json!("connected"), &json!("legacy")));
    assert_eq!((&up["clients"], &up["connections"]), (&json!(1), &json!(1)));
    assert!(up["round_trip_ms"].as_f64().is_some_and(|time| time > 0.0), "{up}");
    assert!(up["catalogue"]["tools"].as_u64().is_some_and(|tools| tools > 1), "{up}");
    assert_eq!(up["catalogue"]["is_current"], json!(true), "{up}");
    client.send_call(2, "silent", json!({"text": "never"}));
    client.send_call(3, "echo", json!({"text": "after"}));
    let busy = home.only_when("one works and one waits", |it| {
        (&it["calls"]["open"], &it["calls"]["waiting"]) == (&json!(1), &json!(1))
    });
    assert_eq!(busy["calls"]["made"], 1, "{busy}");
    first.close();
    let lost = home.only_when("it is lost", is_in("away"));
    assert_eq!(lost["connections"], 1);
    let told = lost["errors"].to_string();
    assert!(told.contains("application gone"), "{told}");
    let _second = LiveApp::start(&place, Manner::default(), &deeds);
    let again = home.only_when("it is back", is_in("connected"));
    assert_eq!(again["connections"], 2, "{again}");
    assert_eq!(text(&client.answer(3)["result"]), "after");
    home.only_when("the lost call is counted", |it| it["calls"]["failed"] == 1);
    home.finish(client);
}

#[test]
fn bridges_that_share_a_connection_say_so() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let [owner, guest] = [(); 2].map(|()| {
        let mut client = home.client(&app.url(), &[]);
        assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
        client
    });
    let of = |pid: u32| {
        let all = bridges(home.0.path());
        all.into_iter().find(|it| it["pid"] == json!(pid)).unwrap()
    };
    assert_eq!(
        (&of(owner.pid())["clients"], &of(owner.pid())["through"]),
        (&json!(2), &Value::Null)
    );
    assert_eq!(of(guest.pid())["through"], json!(owner.pid()));
    let (_, table) = status(home.0.path(), &[]);
    assert!(table.contains(&format!("through process {}", owner.pid())), "{table}");
    assert!(guest.finish().success());
    home.finish(owner);
}

#[test]
fn a_bridge_that_was_killed_is_not_shown_and_its_files_go() {
    let home = Home::new();
    let killed = home.client("ws://127.0.0.1:1", &[]);
    let living = home.client("ws://127.0.0.1:2", &[]);
    assert_eq!((bridges(home.0.path()).len(), home.status_files()), (2, 4));
    killed.kill();
    assert_eq!(home.status_files(), 4, "nobody has looked yet");
    assert_eq!(home.only()["pid"], json!(living.pid()));
    assert_eq!(home.status_files(), 2);
    living.kill();
    // The next bridge removes them as well.
    let next = home.client("ws://127.0.0.1:1", &[]);
    assert_eq!(home.status_files(), 2);
    assert_eq!(home.only()["pid"], json!(next.pid()));
    assert!(next.finish().success());
}

#[test]
fn two_that_look_at_once_see_no_bridge_where_none_is() {
    let home = Home::new();
    let folder = home.status_folder();
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    for round in 0..3 {
        for pid in 0..500 {
            fs::write(folder.join(format!("{pid}-0123abcd.lock")), "{}").unwrap();
        }
        std::thread::scope(|scope| {
            let looks = [(); 4].map(|()| scope.spawn(|| status(home.0.path(), &[])));
            for look in looks {
                let none = (Some(0), "no bridge of this user runs\n".to_owned());
                assert_eq!(look.join().unwrap(), none, "in round {round}");
            }
        });
        assert_eq!(home.status_files(), 0);
    }
}

#[test]
fn who_found_the_socket_and_does_not_know_the_word_hears_nothing() {
    let home = Home::new();
    let client = home.client("ws://127.0.0.1:1", &["--record-messages"]);
    let mut paths = fs::read_dir(home.status_folder()).unwrap().map(|file| file.unwrap().path());
    let socket = paths.find(|path| path.extension() == Some("sock".as_ref())).unwrap();
    for asked in ["m", "s", &"0".repeat(33), &format!("{}m", "f".repeat(32))] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(asked.as_bytes()).unwrap();
        let mut heard = Vec::new();
        // It may hang up before all was said.
        drop(stream.read_to_end(&mut heard));
        assert_eq!(String::from_utf8_lossy(&heard), "", "{asked}");
    }
    assert_eq!(home.only()["answers"], json!(true), "its user knows it");
    home.finish(client);
}

#[test]
fn a_bridge_that_is_stopped_does_not_answer_and_nobody_waits_for_it() {
    let home = Home::new();
    let [stopped, well] = [1, 2].map(|port| home.client(&format!("ws://127.0.0.1:{port}"), &[]));
    home_of_two_answers(&home);
    send_signal(stopped.pid(), Signal::STOP).unwrap();
    let asked = Instant::now();
    let (code, table) = status(home.0.path(), &[]);
    let took = asked.elapsed();
    send_signal(stopped.pid(), Signal::CONT).unwrap();
    assert!(code == Some(1) && took < Duration::from_secs(20), "{code:?} after {took:?}");
    let row = |pid: u32| {
        let row = table.lines().find(|line| line.trim_start().starts_with(&pid.to_string()));
        row.unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    assert!(row(stopped.pid()).contains("ws://127.0.0.1:1/  does not answer"), "{table}");
    assert!(row(well.pid()).contains("ws://127.0.0.1:2/  "), "{table}");
    assert!(!row(well.pid()).contains("does not answer"), "{table}");
    assert!(table.contains("it may be stopped"), "{table}");
    home_of_two_answers(&home);
    assert!(stopped.finish().success());
    home.finish(well);
}

fn home_of_two_answers(home: &Home) {
    let all = bridges(home.0.path());
    assert_eq!(
        (all.len(), all.iter().all(|it| it["answers"] == json!(true))),
        (2, true),
        "{all:?}"
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a client starts the bridge so, and the test ends it"
)]
fn a_program_that_was_replaced_since_it_began_is_told() {
    let home = Home::new();
    let own = home.0.path().join("pontoon");
    // Not by us: a thread that starts something meanwhile would hold the file open.
    assert!(Command::new("cp").arg(&binaries().pontoon).arg(&own).status().unwrap().success());
    let mut command = Command::new(&own);
    command.args(["connect", "ws://127.0.0.1:1"]).env_clear();
    command.env("HOME", home.0.path()).env("TMPDIR", home.0.path().join("tmp"));
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    assert_eq!(home.only()["program"]["on_disk"], "same");
    let new = home.0.path().join("new");
    fs::write(&new, "another").unwrap();
    fs::rename(&new, &own).unwrap();
    assert_eq!(home.only()["program"]["on_disk"], "replaced");
    let (code, table) = status(home.0.path(), &[]);
    assert_eq!(code, Some(0), "it works, as it did before");
    assert!(table.contains("! the program on disk is another than the one that runs"), "{table}");
    fs::remove_file(&own).unwrap();
    assert_eq!(home.only()["program"]["on_disk"], "gone");
    home.finish(client);
}

#[test]
fn a_serve_is_shown_with_its_servers() {
    let broken = Server::new("broken", "/bin/false".as_ref(), &[]).that_may_fail();
    let rig = plan([fixture("stateless"), broken]).start();
    rig.wait_for_state("fixture", "ready");
    rig.wait_for_state("broken", "failed");
    let [serve] = <[Value; 1]>::try_from(bridges(rig.directory())).unwrap();
    assert_eq!((&serve["kind"], &serve["pid"]), (&json!("serve"), &json!(rig.pid())));
    assert_eq!(serve["address"], format!("http://{}", rig.address()));
    assert_eq!(serve["state"], "degraded");
    let servers = &serve["health"]["servers"];
    assert_eq!(servers["fixture"]["state"], "ready");
    assert_eq!(servers["fixture"]["eras"], json!(["legacy", "modern"]));
    assert!(servers["broken"]["error"].is_string(), "{serve}");
    let (code, table) = status(rig.directory(), &[]);
    assert!(table.contains("the server `broken` does not work"), "{table}");
    let row = |name: &str| table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(row("fixture").contains("ready") && row("broken").contains("failed"), "{table}");
    assert_eq!(code, Some(0));
    let directory = rig.directory().to_owned();
    let folder = directory.join(".local/state/pontoon/status");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    rig.stop();
}

/// What `--how banner` costs: text that is no message, which may have been the answer.
const BANNER: &str = "H01: log or banner text on stdout";

#[test]
fn a_heal_of_a_process_and_of_an_application_is_seen_wherever_it_is_looked_for() {
    let rude = binaries().rude_server.clone();
    let how = ["--how", "banner"];
    let app = CarriedServer::start(&rude, &how.map(str::to_owned));
    let process = Server::new("process", &rude, &how).with("mode", "stateful");
    let reached = Server::reached("app", "url", &app.url());
    let rig = plan([process, reached].map(|server| server.with("timeout", 3))).start();
    for name in ["process", "app"] {
        rig.wait_for_state(name, "ready");
        let mut client = Modern::new(&rig.endpoint(name));
        let given_up = client.call(1, "wait", json!({"ms": 600_000})).text();
        assert!(given_up.contains(BANNER), "the error it explains names it: {given_up}");
    }
    for name in ["process", "app"] {
        // What was counted meanwhile, by the end of a process, is in the next look of each.
        let mut last = String::new();
        let is_seen = holds_within(SOON, || {
            let page = Page::of(&rig);
            let labels = [("server", name), ("code", "H01")];
            let counted = page.samples("pontoon_heals_total", &labels).map(|it| it.value).next();
            let health = rig.health()["servers"][name]["heals"]["H01"].clone();
            let [serve] = <[Value; 1]>::try_from(bridges(rig.directory())).unwrap();
            let told = &serve["health"]["servers"][name]["heals"]["H01"];
            let (_, table) = status(rig.directory(), &[]);
            let row = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            last = format!("{counted:?} {health} {told} {row}");
            counted.is_some_and(|it| it > 0.0)
                && counted == health.as_f64()
                && counted == told.as_f64()
                && row.contains(&format!("healed: H01 {health}"))
        });
        assert!(is_seen, "{name}: {last}");
    }
    rig.stop();
}

#[test]
fn a_heal_of_an_application_is_seen_at_the_bridge_that_connects_to_it() {
    let (home, how) = (Home::new(), ["--how", "banner"]);
    let app = CarriedServer::start(&binaries().rude_server, &how.map(str::to_owned));
    let mut client = home.client(&app.url(), &["--timeout", "3s"]);
    let given_up = client.call(1, "wait", json!({"ms": 600_000}));
    assert!(text(&given_up).contains(BANNER), "{given_up}");
    let healed = home.only()["heals"]["H01"].as_u64();
    assert!(healed.is_some_and(|times| times > 0), "{healed:?}");
    let (_, table) = status(home.0.path(), &[]);
    assert!(table.contains("healed: H01 "), "{table}");
    home.finish(client);
}

#[test]
fn a_heal_explains_why_a_connection_was_lost_under_a_call() {
    let (home, how) = (Home::new(), ["--how", "banner", "--how", "die-mid-line"]);
    let app = CarriedServer::start(&binaries().rude_server, &how.map(str::to_owned));
    let mut client = home.client(&app.url(), &[]);
    let lost = client.call(1, "echo", json!({"text": "x"}));
    let told = text(&lost);
    assert!(told.contains("was lost after this call was sent") && told.contains(BANNER), "{told}");
    home.finish(client);
}

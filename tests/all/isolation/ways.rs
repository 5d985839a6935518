//! Every way from one person's process to another's that the table in SECURITY.md names: a server
//! leaves a word in one and looks for it in the other, at every level, as root and as an ordinary user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use pontoon_tests::client::Speaker;
use pontoon_tests::rig::{Plan, Rig, Server};
use serde_json::{Value, json};

use super::systems::{unprivileged, with_bridge};
use super::{ADA, BEN, Headers, Place, client, is_root};

/// The table of SECURITY.md: a way, and for each level whether it is shut.
fn table() -> Vec<(String, [String; 3])> {
    let page = include_str!("../../../SECURITY.md");
    let rows = page.lines().skip_while(|line| !line.starts_with("| way |")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [way, basic, confined, user, _] = cells[..] else { panic!("{row}") };
            (way.to_owned(), [basic, confined, user].map(str::to_owned))
        })
        .collect()
}

/// Whom the bridge runs as.
#[derive(Clone, Copy, PartialEq)]
enum As {
    TheTester,
    Nobody,
}

impl As {
    /// Whether this user may have a view of the file system of its own on this machine.
    fn may_mount(self) -> bool {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let own_view = match self {
            Self::TheTester if is_root() => vec!["unshare", "-m", "true"],
            Self::Nobody if is_root() => [&nobody[..], &["unshare", "-Urm", "true"]].concat(),
            _ => vec!["unshare", "-Urm", "true"],
        };
        #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
        let status = Command::new(own_view[0]).args(&own_view[1..]).status();
        status.is_ok_and(|status| status.success())
    }

    fn adapt(self, plan: Plan, place: &Place) -> Plan {
        match self {
            Self::TheTester => plan,
            Self::Nobody => {
                let plan = plan.variable("MCPO_JOBS_DIR", "jobs");
                with_bridge(plan, unprivileged(place))
            }
        }
    }
}

struct Scene {
    rig: Rig,
    file: String,
    key: u32,
}

impl Scene {
    fn new(place: &Place, isolation: Value, user: As) -> Self {
        let script = place.path("programs/ways.py");
        fs::write(&script, include_str!("ways.py")).unwrap();
        // A file of the bridge's user that every process may read.
        let file = place.path("programs/readable");
        fs::write(&file, "for everybody").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        if user == As::Nobody && is_root() {
            chown(&file, Some(65_534), Some(65_534)).unwrap();
        }
        let file = file.display().to_string();
        let args = [script.to_str().unwrap(), &file];
        let python = Path::new("/usr/bin/env");
        let server = Server::new("rude", python, &[&["python3"], &args[..]].concat())
            .with("isolation", isolation)
            .with("mode", "stateful")
            .with("timeout", "30s");
        let rig = user.adapt(place.plan([server]), place).start();
        // Of this bridge alone, so that tests at the same time do not meet.
        Self { key: rig.pid(), rig, file }
    }

    fn ask(&self, who: Headers<'_>, tool: &str, way: &str, left: &Value) -> Value {
        let place = json!({"file": self.file, "key": self.key});
        let arguments = json!({"way": way, "left": left, "place": place});
        let response = client(&self.rig, "rude", who).call(1, tool, arguments);
        let text = response.tool_text().unwrap_or_else(|| panic!("{way}: {}", response.text()));
        serde_json::from_str(&text).unwrap()
    }

    /// Whether a word came from one person's process to the other's, and what each met.
    fn comes_through(&self, way: &str) -> (bool, String) {
        let left = self.ask(ADA, "leave", way, &Value::Null);
        let Some(word) = left.get("left") else { return (false, format!("not left: {left}")) };
        let found = self.ask(BEN, "find", way, word);
        (found == "found", format!("left, and then: {found}"))
    }
}

/// What the table promises holds, for each of its ways.
#[track_caller]
fn check(isolation: &Value, column: usize, user: As) {
    let place = Place::new();
    let scene = Scene::new(&place, isolation.clone(), user);
    let is_offline = isolation["network"] == "none";
    let landlock = scene.ask(ADA, "ways", "", &Value::Null)["landlock"].as_i64();
    let mut wrong = Vec::new();
    for (way, cells) in table() {
        let (came, told) = scene.comes_through(&way);
        let is_shut = match cells[column].as_str() {
            "shut" => true,
            "open" => false,
            "shut by `network: none`" => is_offline,
            "shut by Landlock ABI 9" => landlock.is_some_and(|abi| abi >= 9),
            "shut where Pontoon may mount" => user.may_mount(),
            other => panic!("{way}: what is {other:?}?"),
        };
        if came == is_shut {
            wrong.push(format!("{way}: {told}"));
        }
    }
    scene.rig.stop();
    assert!(wrong.is_empty(), "at {isolation}:\n{}", wrong.join("\n"));
}

#[test]
fn the_table_has_every_way_the_server_knows() {
    let place = Place::new();
    let scene = Scene::new(&place, json!("basic"), As::TheTester);
    let ways = scene.ask(ADA, "ways", "", &Value::Null)["ways"].take();
    let table: Vec<_> = table().into_iter().map(|(way, _)| way).collect();
    assert_eq!(ways, json!(table));
    scene.rig.stop();
}

#[test]
fn each_level_shuts_what_the_table_says() {
    // Here every way is open, but for what the network is: the attempts are good ones.
    check(&json!("basic"), 0, As::TheTester);
    for (level, column) in [("confined", 1), ("user", 2)] {
        if level == "user" && !is_root() {
            println!("skipped: `user`, which needs root");
            continue;
        }
        check(&json!(level), column, As::TheTester);
        check(&json!({"level": level, "network": "none"}), column, As::TheTester);
    }
}

#[test]
fn an_ordinary_user_is_kept_as_well() {
    check(&json!("basic"), 0, As::Nobody);
    check(&json!("confined"), 1, As::Nobody);
    check(&json!({"level": "confined", "network": "none"}), 1, As::Nobody);
}

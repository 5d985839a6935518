//! A hostile server, called as a tool: what its level promises to refuse is refused, and the bridge
//! goes on serving.
//!
//! Here are the scene and what lies outside of the workspace: files and processes. `bounds` has the
//! limits and the network, `people` the users of each chat, `systems` kernels and users that cannot
//! have it all, `shut` directories of ours that a server shuts, `ways` every way from one person's process to another's, `languages` real interpreters,
//! `temporary` the temporary files, and `certificates` what the network needs.

mod bounds;
mod certificates;
mod languages;
mod people;
mod shut;
mod systems;
mod temporary;
mod ways;

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pontoon_tests::client::{Modern, Response, Speaker};
use pontoon_tests::program;
use pontoon_tests::rig::{Plan, Rig, Server, processes, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{binaries, plan};

type Headers<'a> = &'a [(&'a str, &'a str)];

const USER: &str = "X-OpenWebUI-User-Id";
const CHAT: &str = "X-OpenWebUI-Chat-Id";
const ADA: Headers<'static> = &[(USER, "ada"), (CHAT, "c1")];
const BEN: Headers<'static> = &[(USER, "ben"), (CHAT, "c1")];

const SOON: Duration = Duration::from_secs(10);

/// Every level that can be had here. Users of their own are for root to give.
fn levels() -> Vec<&'static str> {
    let mut levels = vec!["basic"];
    levels.extend(walled());
    levels
}

/// The levels that keep a server to its workspace.
fn walled() -> Vec<&'static str> {
    if is_root() {
        return vec!["confined", "user"];
    }
    println!("skipped: `user`, which needs root");
    vec!["confined"]
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What a path or process that is kept from a server looks like to it.
const REFUSED: &str = "EACCES|EPERM|EROFS";
/// Another process may also not be there at all.
const UNSEEN: &str = "EACCES|EPERM|ENOENT|ESRCH";

/// Something a server tries, and what it may hear.
type Attempt<'a> = (&'a [&'a str], &'a str);

/// A place that every user of the system can pass, with the programs and the jobs in it. The one of
/// a rig is shut.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::Builder::new().prefix("pontoon-place-").tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let place = Self(place);
        fs::create_dir(place.path("programs")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A program where everybody can run it.
    fn program(&self, program: &Path) -> PathBuf {
        program::copy(program, &self.path("programs").join(program.file_name().unwrap()))
    }

    /// The server that tries what it is told to, called `rude`.
    fn rude(&self, isolation: impl Into<Value>) -> Server {
        let program = self.program(&binaries().rude_server);
        Server::new("rude", &program, &["--how", "attempts"]).with("isolation", isolation)
    }

    /// The well-behaved server, called `fixture`.
    fn fixture(&self, isolation: impl Into<Value>) -> Server {
        let program = self.program(&binaries().fixture_server);
        Server::new("fixture", &program, &[]).with("isolation", isolation)
    }

    /// A bridge in front of these servers, with its jobs here, that believes who calls.
    fn plan(&self, servers: impl IntoIterator<Item = Server>) -> Plan {
        let jobs = self.path("jobs").display().to_string();
        let plan = plan(servers).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8");
        plan.variable("MCPO_JOBS_DIR", &jobs).variable("MCPO_API_KEYS", "ops=a-key-of-the-bridge")
    }
}

fn client(rig: &Rig, server: &str, headers: Headers<'_>) -> Modern {
    let key = ("Authorization", "Bearer a-key-of-the-bridge");
    let mut client = Modern::with(&rig.endpoint(server), &[headers, &[key]].concat());
    // As spares are first made ready for.
    client.capabilities = json!({});
    client
}

/// How the call went in which the server tries all of it.
fn attempt(rig: &Rig, headers: Headers<'_>, acts: &[&[&str]]) -> Response {
    client(rig, "rude", headers).call(1, "attempt", json!({"acts": acts}))
}

/// What came of each act.
#[track_caller]
fn outcomes(response: &Response) -> Vec<String> {
    let text = response.tool_text().unwrap_or_else(|| panic!("{}", response.text()));
    serde_json::from_str(&text).unwrap()
}

/// In one call the server tries all of it and hears of each what it should; then the next call works.
#[track_caller]
fn check(rig: &Rig, headers: Headers<'_>, attempts: &[Attempt<'_>]) {
    let acts: Vec<_> = attempts.iter().map(|(act, _)| *act).collect();
    let heard = outcomes(&attempt(rig, headers, &acts));
    let wrong: Vec<_> = attempts
        .iter()
        .zip(&heard)
        .filter(|((_, expected), heard)| !expected.split('|').any(|it| it == *heard))
        .map(|((act, expected), heard)| format!("{act:?}: {heard}, not {expected}"))
        .collect();
    assert!(wrong.is_empty() && heard.len() == attempts.len(), "{}", wrong.join("\n"));
    serves(rig);
}

/// The bridge still serves.
#[track_caller]
fn serves(rig: &Rig) {
    let response = client(rig, "rude", &[]).call(2, "echo", json!({"text": "still here"}));
    assert_eq!(response.tool_text().as_deref(), Some("still here"), "{}", response.text());
}

/// Lets somebody's call leave a file, and gives its job and where the file lies.
fn leave_file(rig: &Rig, jobs: &Path, headers: Headers<'_>, server: &str) -> (String, PathBuf) {
    let arguments = json!({"name": "secret.txt", "text": "for my eyes"});
    let response = client(rig, server, headers).call(1, "write_file", arguments);
    let job = response.head.header("x-mcpo-job-id").unwrap_or_else(|| panic!("{response:?}"));
    let path = jobs.join(job).join("files/secret.txt");
    assert!(path.is_file(), "{}", path.display());
    (job.to_owned(), path)
}

/// The paths of everything that is none of a server's business: another job with its records,
/// another chat's workspace, the configuration, the state, the lock of the bridge.
fn foreign(rig: &Rig, place: &Place) -> Vec<PathBuf> {
    let jobs = place.path("jobs");
    let (job, file) = leave_file(rig, &jobs, BEN, "fixture");
    let record = jobs.join(&job).join("metadata.json");
    let request = jobs.join(&job).join("request.json");
    wait_until("its records are written", SOON, || record.exists() && request.exists());
    let spaces = fs::read_dir(jobs.join(".sessions")).unwrap();
    let spaces = spaces.map(|entry| entry.unwrap().path().join("files/secret.txt"));
    let space = spaces.into_iter().find(|path| path.exists()).expect("a chat's workspace");
    let state = rig.directory().join("state");
    let learnt = fs::read_dir(state.join("catalog")).unwrap();
    let learnt = learnt.map(|entry| entry.unwrap().path()).find(|path| path.is_file());
    let learnt = learnt.expect("something was learnt");
    let config = rig.directory().join("mcp-servers.json");
    // With it, a process asks the bridge for its status, and for arguments of other programs.
    let known = fs::read_dir(rig.directory().join(".local/state/pontoon/status")).unwrap();
    let known = known.map(|entry| entry.unwrap().path());
    let lock = known.into_iter().find(|path| path.extension() == Some("lock".as_ref()));
    let lock = lock.expect("the lock of the bridge");
    vec![file, record, request, space, learnt, config, lock]
}

/// A server of each kind that a child can be of.
fn kinds(place: &Place, level: &str) -> Vec<(&'static str, Server)> {
    let rude = || place.rude(level);
    let kept = rude().with("mode", "stateful").with("idle_timeout", 1);
    let mut kinds = vec![
        ("a child of one call", rude().with("mode", "stateless")),
        ("a child of a chat", kept),
    ];
    // Whose user a spare should be is not known before its call.
    if level != "user" {
        kinds.push(("a spare", rude().with("mode", "stateless").with("warm", 2)));
    }
    kinds
}

/// Waits until the next calls will be served by spares, if they are to be.
fn wait_for_spares(rig: &Rig, kind: &str) {
    if kind == "a spare" {
        let spares = || rig.health()["servers"]["rude"]["spares"] == 2;
        wait_until("spares are ready", SOON, spares);
    }
}

/// How many calls of the hostile server were served by spares.
fn spares_used(rig: &Rig) -> u64 {
    rig.metric(r#"pontoon_spare_hits_total{server="rude"}"#) as u64
}

#[test]
fn what_is_outside_of_the_workspace_is_neither_read_nor_written() {
    for level in walled() {
        let place = Place::new();
        for (kind, rude) in kinds(&place, level) {
            let fixture = place.fixture(level).with("workspace", "session");
            let rig = place.plan([rude, fixture]).start();
            for path in foreign(&rig, &place) {
                wait_for_spares(&rig, kind);
                let folder = path.parent().unwrap().display().to_string();
                let new = format!("{folder}/planted");
                let text = path.display().to_string();
                check(
                    &rig,
                    ADA,
                    &[
                        (&["read", &text], REFUSED),
                        (&["write", &text], REFUSED),
                        (&["truncate", &text], REFUSED),
                        (&["remove", &text], REFUSED),
                        (&["list", &folder], REFUSED),
                        (&["create", &new], REFUSED),
                        (&["link", &text, "mine"], "EACCES|EPERM|EROFS|EXDEV"),
                        (&["rename", &text, "mine"], "EACCES|EPERM|EROFS|EXDEV"),
                    ],
                );
                assert!(fs::metadata(&path).unwrap().len() > 0, "{kind} emptied {text}");
                assert!(!Path::new(&new).exists(), "{kind} planted {new}");
                // A file of one's own user can always be given another mode: documented.
                if level == "user" {
                    check(
                        &rig,
                        ADA,
                        &[(&["chmod", &text], REFUSED), (&["chmod", &folder], REFUSED)],
                    );
                }
            }
            assert_eq!(spares_used(&rig) > 0, kind == "a spare");
            let jobs = place.path("jobs").display().to_string();
            check(
                &rig,
                ADA,
                &[
                    (&["create", "own"], "ok"),
                    (&["write", "own"], "ok"),
                    (&["read", "own"], "ok"),
                    (&["list", "."], "ok"),
                    (&["list", ".."], REFUSED),
                    (&["list", &jobs], REFUSED),
                    (&["create", "../planted"], REFUSED),
                    (&["rename", "own", "../planted"], "EACCES|EPERM|EROFS|EXDEV"),
                    (&["list", "/root"], REFUSED),
                    (&["list", "/tmp"], REFUSED),
                    (&["list", "/dev/shm"], REFUSED),
                    (&["create", "/tmp/pontoon-planted"], REFUSED),
                    (&["create", "/usr/pontoon-planted"], REFUSED),
                    (&["write", "/etc/passwd"], REFUSED),
                    (&["read", "/etc/shadow"], REFUSED),
                ],
            );
            rig.stop();
        }
    }
}

/// Writes the records of the jobs that have none yet.
fn write_records(jobs: &Path) {
    let jobs = fs::read_dir(jobs).unwrap().map(|job| job.unwrap().path());
    for job in jobs.filter(|job| job.join("files").is_dir()) {
        for name in ["request.json", "metadata.json"] {
            let file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(job.join(name));
            // The bridge may have been first, or the job is gone again.
            drop(file);
        }
    }
}

#[test]
fn the_records_of_its_own_call_are_not_for_a_server() {
    for level in walled() {
        let place = Place::new();
        let rig = place.plan([place.rude(level).with("mode", "stateless")]).start();
        let (jobs, is_over) = (place.path("jobs"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // The bridge writes them behind the answer, when a server may still be on its way out.
            scope.spawn(|| {
                wait_until("the call is over", SOON, || {
                    write_records(&jobs);
                    is_over.load(Ordering::Acquire)
                });
            });
            check(
                &rig,
                ADA,
                &[
                    (&["await", "../request.json"], "ok"),
                    (&["read", "../request.json"], REFUSED),
                    (&["remove", "../request.json"], REFUSED),
                    (&["rename", "../request.json", "mine"], "EACCES|EPERM|EROFS|EXDEV"),
                    (&["await", "../metadata.json"], "ok"),
                    (&["write", "../metadata.json"], REFUSED),
                    (&["create", "../response.json"], REFUSED),
                ],
            );
            is_over.store(true, Ordering::Release);
        });
        rig.stop();
    }
}

#[test]
fn a_planted_link_leads_nowhere() {
    for level in walled() {
        let place = Place::new();
        let rude = place.rude(level).with("mode", "stateless").with("workspace", "session");
        let fixture = place.fixture(level).with("workspace", "session");
        let rig = place.plan([rude, fixture]).start();
        let (job, target) = leave_file(&rig, &place.path("jobs"), BEN, "fixture");
        let folder = target.parent().unwrap().display().to_string();
        let target = target.display().to_string();
        // Whether somebody else planted it before the process began, or it did so itself.
        let (linked, planted) = (["symlink", &target, "made"], ["symlink", &folder, "folder"]);
        check(&rig, ADA, &[(&linked, "ok"), (&planted, "ok")]);
        check(
            &rig,
            ADA,
            &[
                (&["read", "made"], REFUSED),
                (&["write", "made"], REFUSED),
                (&["truncate", "made"], REFUSED),
                (&["read", "folder/secret.txt"], REFUSED),
                (&["create", "folder/planted"], REFUSED),
                (&["symlink", "/proc/self/root", "root"], "ok"),
                (&["read", &format!("root{target}")], REFUSED),
                (&["symlink", "/etc/shadow", "shadow"], "ok"),
                (&["read", "shadow"], REFUSED),
            ],
        );
        // Nor does the bridge follow them when it looks for what a call made.
        let response = attempt(&rig, ADA, &[&["create", "plain.txt"]]);
        let link = response.head.header("link").unwrap_or_default().to_owned();
        assert!(link.contains("plain.txt"), "{response:?}");
        for name in ["made", "folder", "root", "shadow"] {
            assert!(!response.text().contains(&format!("/{name}")), "{}", response.text());
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "for my eyes");
        assert!(!Path::new(&folder).join("planted").exists());
        assert_eq!(rig.get(&format!("/files/{job}/secret.txt")).text(), "for my eyes");
        rig.stop();
    }
}

#[test]
fn what_is_pontoons_own_stays_shut_beside_the_program() {
    let place = Place::new();
    // Everything in one folder, as somebody may well have it.
    fs::rename(place.path("programs"), place.path("bin")).unwrap();
    symlink("bin", place.path("programs")).unwrap();
    fs::write(place.path("readme"), "for everybody").unwrap();
    let rude = place.rude("confined").with("mode", "stateless");
    let rude = Server { command: place.path("bin/rude-server"), ..rude };
    let fixture = place.fixture("confined").with("workspace", "session");
    let state = place.path("state").display().to_string();
    let rig = place.plan([rude, fixture]).variable("MCPO_STATE_DIR", &state).start();
    let (_, file) = leave_file(&rig, &place.path("jobs"), BEN, "fixture");
    let text = |path: &Path| path.display().to_string();
    wait_until("something is learnt", SOON, || {
        fs::read_dir(&state).is_ok_and(|mut learnt| learnt.next().is_some())
    });
    check(
        &rig,
        ADA,
        &[
            (&["read", &text(&place.path("readme"))], "ok"),
            (&["list", &text(&place.path("bin"))], "ok"),
            (&["read", &text(&file)], REFUSED),
            (&["list", &text(&place.path("jobs"))], REFUSED),
            (&["list", &state], REFUSED),
            (&["create", "own"], "ok"),
        ],
    );
    rig.stop();
}

#[test]
fn files_with_secrets_of_the_bridge_are_shut_in_whatever_folder_they_lie() {
    for level in walled() {
        let place = Place::new();
        let shared = place.path("shared");
        fs::create_dir_all(shared.join("deep")).unwrap();
        fs::write(shared.join("readme"), "for everybody").unwrap();
        let secret = "0123456789abcdef";
        // In a folder that may be read and named by a link in it, and beside the program.
        let files = [shared.join("deep/link"), place.path("programs/token")];
        for file in &files {
            fs::write(file, secret).unwrap();
            // Its mode is not what keeps it.
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        symlink("deep/link", shared.join("alias")).unwrap();
        let text = |path: &Path| path.display().to_string();
        let isolation = json!({"level": level, "read": [text(&shared)]});
        let rude = place.rude(isolation).with("mode", "stateless");
        let plan = place.plan([rude]);
        let plan = plan.variable("MCPO_LINK_SECRET_FILE", &text(&shared.join("alias")));
        let rig = plan.variable("MCPO_API_KEY_FILE", &text(&files[1])).start();
        let readme = text(&shared.join("readme"));
        check(&rig, ADA, &[(&["read", &readme], "ok"), (&["list", &text(&shared)], REFUSED)]);
        for file in files.iter().chain([&shared.join("alias")]) {
            check(&rig, ADA, &[(&["read", &text(file)], REFUSED)]);
        }
        rig.stop();
    }
}

#[test]
fn the_bridge_and_its_helper_are_neither_looked_into_nor_signalled() {
    for level in walled() {
        let place = Place::new();
        for (kind, rude) in kinds(&place, level) {
            let rig = place.plan([rude]).start();
            let spawner = processes::all().into_iter().find(|it| it.parent == rig.pid());
            let spawner = spawner.unwrap_or_else(|| panic!("{kind}: no helper")).pid;
            for pid in [rig.pid(), spawner] {
                wait_for_spares(&rig, kind);
                let file = |name: &str| format!("/proc/{pid}/{name}");
                let pid = pid.to_string();
                check(
                    &rig,
                    ADA,
                    &[
                        (&["read", &file("environ")], UNSEEN),
                        (&["open", &file("mem")], UNSEEN),
                        (&["read", &file("cmdline")], UNSEEN),
                        (&["list", &file("fd")], UNSEEN),
                        (&["list", &file("cwd/")], UNSEEN),
                        (&["read", &file("root/etc/shadow")], UNSEEN),
                        (&["trace", &pid], "EPERM"),
                        (&["peek", &pid], "EPERM"),
                        (&["kill", &pid], "EPERM"),
                    ],
                );
            }
            rig.stop();
        }
    }
}

#[test]
fn a_grandchild_in_a_session_of_its_own_ends_with_its_server() {
    for level in levels() {
        let place = Place::new();
        for (kind, rude) in kinds(&place, level) {
            let rig = place.plan([rude]).start();
            wait_for_spares(&rig, kind);
            let heard = outcomes(&attempt(&rig, ADA, &[&["leave"]]));
            let pid: u32 = heard[0].parse().unwrap_or_else(|_| panic!("{level}: {heard:?}"));
            let is_gone = || processes::read(pid).is_none_or(|process| process.is_zombie());
            wait_until("the grandchild is gone", SOON, is_gone);
            serves(&rig);
            rig.stop();
        }
    }
}

#[test]
fn basic_keeps_nobody_from_other_jobs_and_says_so() {
    let place = Place::new();
    let rig = place.plan([place.rude("basic"), place.fixture("basic")]).start();
    let (_, file) = leave_file(&rig, &place.path("jobs"), BEN, "fixture");
    // Documented: it has the rights of the bridge. Whoever changes this changes SECURITY.md too.
    check(&rig, ADA, &[(&["read", &file.display().to_string()], "ok")]);
    assert_eq!(rig.health()["servers"]["rude"]["isolation"], "basic");
    rig.stop();
}

//! The soak: thousands of calls of every kind, much of it going wrong on purpose, and nothing left.
//!
//! Both modes and eras, spares and workspaces; calls given up, crashes, hangs, floods, killed
//! children, a disk that is full for a while. Then `kill -9` under load, a start on the same jobs,
//! and collection: no process, socket or permit is left, every job has ended, the disk is empty.
//! `PONTOON_SOAK` says how many calls.

mod calls;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pontoon::jobs::{Store, StoreOptions};
use pontoon_tests::client::{Client, ERAS, Endpoint, Speaker};
use pontoon_tests::disk::{SmallDisk, records};
use pontoon_tests::rig::{
    Plan, Rig, Server, bridge_command, holds_within, send_signal, wait_until,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::calls::{BAD, Caller, GOOD, Tally};
use crate::limits::metric;
use crate::stress::{Random, calls};
use crate::{binaries, plan};

const CLIENTS: usize = 16;
const SPARES: usize = 4;
const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);
const MIB: u64 = 1 << 20;
/// From this many calls on, every kind of trouble must have come.
const SHOWS_ALL: usize = 5_000;
/// Beyond this many calls, jobs are collected while the soak goes on.
const MAX_KEPT: usize = 20_000;

#[test]
fn nothing_is_left_after_thousands_of_calls_that_went_wrong() {
    let count = calls("PONTOON_SOAK", 500);
    let jobs = Jobs::new(count);
    let begun = Instant::now();

    let rig = bridge(&jobs, count, expiry(count), "5").start();
    rig.wait_for_children(SPARES);
    let descriptors = rig.descriptors();
    let tally = Tally::default();
    let kills = soak(&rig, &jobs, count, &tally);
    println!("soak: {count} calls in {:.0} s: {}", begun.elapsed().as_secs_f64(), tally.summary());
    assert_eq!(tally.total(), count, "calls are lost");
    expect_all_kinds(count, &tally, kills, jobs.disk.is_some());
    expect_quiet(&rig, descriptors);
    let peak = rig.peak_resident_bytes() / MIB;
    expect_ended(&jobs.path, SPARES, "after the calls");

    kill_under_load(rig);
    let left = records(&jobs.path).len();
    let rig = bridge(&jobs, count, "1d", "3600").start();
    expect_ended(&jobs.path, SPARES, "after kill -9 and a start");
    let again = Tally::default();
    soak(&rig, &jobs, (count / 20).max(50), &again);
    rig.wait_for_children(SPARES);
    rig.stop();
    expect_ended(&jobs.path, 0, "after an orderly stop");
    println!("soak: {kills} children killed, {peak} MiB at the most, {left} jobs after kill -9");

    collect(&jobs);
    println!("soak: all collected, after {:.0} s in all", begun.elapsed().as_secs_f64());
}

fn expiry(count: usize) -> &'static str {
    if count > MAX_KEPT { "30" } else { "1d" }
}

/// Where the jobs are: on a small disk, where one can be had.
struct Jobs {
    disk: Option<SmallDisk>,
    path: PathBuf,
    _place: TempDir,
}

impl Jobs {
    /// With room for what so many calls leave.
    fn new(count: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        let size = (32 * MIB + count as u64 * (MIB / 64)).min(384 * MIB);
        let disk = SmallDisk::mount(size, 1_000_000);
        let path = disk.as_ref().map_or_else(|| place.path().join("jobs"), SmallDisk::jobs);
        Self { disk, path, _place: place }
    }
}

fn bridge(jobs: &Jobs, count: usize, expiry: &str, gc_interval: &str) -> Plan {
    // A small soak shares the machine with other tests.
    let patience = if count < SHOWS_ALL { 4 } else { 1 };
    let fixture = |name: &str| {
        Server::new(name, &binaries().fixture_server, &[]).with("timeout", 2 * patience)
    };
    let rude = |name: &str, how: &str| {
        Server::new(name, &binaries().rude_server, &["--how", how]).with("timeout", patience)
    };
    let [loud, burst, noise] = BAD;
    plan([
        fixture("plain"),
        fixture("spare").with("warm", SPARES),
        fixture("session").with("workspace", "session"),
        // All clients come from one address, and legacy ones may have two children for a moment.
        fixture("kept")
            .with("mode", "stateful")
            .with("max_processes_per_client", 4 * CLIENTS)
            .with("idle_timeout", 2),
        rude(loud, "flood-stderr"),
        rude(burst, "flood-stdout"),
        rude(noise, "flood-lines"),
    ])
    .variable("MCPO_JOBS_DIR", &jobs.path.display().to_string())
    .variable("MCPO_FILE_EXPIRY", expiry)
    .variable("MCPO_GC_INTERVAL", gc_interval)
    .variable("MCPO_MIN_FREE_DISK", "1MiB")
    .variable("MCPO_MAX_CONCURRENT", "64")
    .variable("MCPO_MAX_MESSAGE", "1MiB")
    .variable("MCPO_LOG_LEVEL", "error")
}

/// Makes so many calls; gives how many children were killed meanwhile.
fn soak(rig: &Rig, jobs: &Jobs, count: usize, tally: &Tally) -> usize {
    let endpoint = rig.endpoint("");
    let (over, kills) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wrong: Vec<String> = thread::scope(|scope| {
        scope.spawn(|| kill_children(rig, &over, &kills));
        scope.spawn(|| fill_disk(jobs, count, tally, &over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let share = count / CLIENTS + usize::from(number < count % CLIENTS);
                let endpoint = &endpoint;
                scope.spawn(move || client(number, share, endpoint, tally))
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        ends.into_iter().map(Result::unwrap).filter_map(Result::err).collect()
    });
    assert!(wrong.is_empty(), "{} clients:\n{}", wrong.len(), wrong.join("\n"));
    kills.into_inner()
}

fn client(number: usize, count: usize, endpoint: &Endpoint, tally: &Tally) -> Result<(), String> {
    let mut caller = Caller::new(number, endpoint);
    for id in 1..=count as u64 {
        tally.count(caller.call(id).map_err(|what| format!("client {number}: {what}"))?);
    }
    caller.end();
    Ok(())
}

/// Kills a child with -9 now and then.
fn kill_children(rig: &Rig, over: &AtomicBool, kills: &AtomicUsize) {
    let mut random = Random(7);
    while !holds_within(Duration::from_millis(150), || over.load(Ordering::Relaxed)) {
        let children = rig.children();
        let Some(child) = random.pick(&children) else { continue };
        if send_signal(child.pid, Signal::KILL).is_ok() {
            kills.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// After two fifths of the calls, lets the disk be full until one in a hundred was refused for it.
fn fill_disk(jobs: &Jobs, count: usize, tally: &Tally, over: &AtomicBool) {
    let Some(disk) = &jobs.disk else { return };
    let wait_for = |holds: &dyn Fn() -> bool| {
        while !holds_within(SOON, || over.load(Ordering::Relaxed) || holds()) {}
    };
    wait_for(&|| tally.total() >= count * 2 / 5);
    disk.fill(0);
    wait_for(&|| tally.of("without room") >= count / 100);
    disk.empty();
}

/// A soak in which nothing goes wrong shows nothing.
fn expect_all_kinds(count: usize, tally: &Tally, kills: usize, has_disk: bool) {
    for kind in ["right", "lists", "large", "files", "files fetched", "given up"] {
        assert!(tally.of(kind) > 0, "no call was {kind}: {}", tally.summary());
    }
    // On a busy machine a good call may take too long, but hardly ever.
    for kind in ["busy", "slow"] {
        assert!(tally.of(kind) <= count / 100, "{}", tally.summary());
    }
    if count < SHOWS_ALL {
        return;
    }
    for kind in ["crashed", "timed out", "flooded", "lost a child", "told of a lost child"] {
        assert!(tally.of(kind) > 0, "no call was {kind}: {}", tally.summary());
    }
    assert!(kills > 20, "only {kills} children were killed");
    assert!(!has_disk || tally.of("without room") > 0, "the disk was never full");
}

/// Waits until nothing is under way and nobody is kept, and fails if anything stays open.
fn expect_quiet(rig: &Rig, descriptors: usize) {
    rig.expect_settled(0);
    // Those that flood are on their way out for a while.
    wait_until("only the spares are left", SOON, || rig.children().len() == SPARES);
    wait_until("every permit is back", SOON, || {
        ["concurrent", "kept_calls", "total_processes"]
            .iter()
            .all(|limit| metric(rig, &format!("pontoon_permits_in_use{{limit=\"{limit}\"}}")) == 0)
    });
    assert_eq!(metric(rig, "pontoon_waiting_calls"), 0);
    // One is the connection that looks.
    let few = descriptors + 8;
    wait_until("descriptors are given back", SOON, || rig.descriptors() <= few);
}

/// Every job has ended, but for those that spares wait in.
fn expect_ended(jobs: &Path, spares: usize, when: &str) {
    let mut open = Vec::new();
    let all_ended = holds_within(SOON, || {
        let has_ended = |record: &Option<Value>| {
            let status = record.as_ref().and_then(|record| record["status"].as_str());
            matches!(status, Some("completed" | "failed"))
        };
        open = records(jobs);
        open.retain(|(_, record)| !has_ended(record));
        open.iter().all(|(_, record)| record.is_none()) && open.len() <= spares
    });
    assert!(all_ended, "{when}: {} jobs have not ended: {open:?}", open.len());
}

/// Kills the bridge while calls are under way; nobody may outlive it.
fn kill_under_load(rig: Rig) {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let era = ERAS[number % 2];
            let client = Client::new(era, &rig.endpoint(GOOD[number / 2 % GOOD.len()]));
            client.with_header("X-Session-Id", &format!("load-{number}"))
        })
        .collect();
    thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || {
                for id in 0.. {
                    let (tool, arguments) = match id % 3 {
                        0 => ("wait", json!({"ms": 100})),
                        1 => ("token", json!({"value": "x"})),
                        _ => ("write_file", json!({"name": format!("{id}"), "text": "x"})),
                    };
                    let params = json!({"name": tool, "arguments": arguments});
                    let message = client.message(&json!(id), "tools/call", params);
                    // The bridge is gone.
                    if client.post(&message).is_err() {
                        return;
                    }
                }
            });
        }
        wait_until("the bridge is busy", SOON, || rig.gauge("running") >= CLIENTS as u64 / 4);
        rig.kill_9();
    });
}

/// Collects everything: by `pontoon gc`, by a bridge at its interval, and when all are long gone.
fn collect(jobs: &Jobs) {
    let is_collected = || records(&jobs.path).iter().all(|(_, record)| record.is_none());
    let place = tempfile::tempdir().unwrap();
    wait_until("`pontoon gc` collects the jobs", SOON, || {
        let mut gc = bridge_command(&binaries().pontoon, place.path());
        gc.env("MCPO_JOBS_DIR", &jobs.path).env("MCPO_FILE_EXPIRY", "1").arg("gc");
        let done = gc.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        records(&jobs.path).is_empty()
    });

    let rig = bridge(jobs, 0, "1", "1").start();
    let mut client = Client::new(ERAS[0], &rig.endpoint("plain"));
    (0..10).for_each(|id| drop(client.call(id, "token", json!({"value": "x"}))));
    drop(client);
    wait_until("the bridge collects the jobs", SOON, || {
        metric(&rig, "pontoon_swept_jobs_total") >= 10 && is_collected()
    });
    rig.stop();

    // A workspace is kept for some minutes after its last use, whatever the expiry.
    let options = StoreOptions { expiry: Duration::from_secs(1), ..StoreOptions::default() };
    let swept = Store::visit(&jobs.path, options).unwrap().sweep(SystemTime::now() + HOUR);
    assert!(swept.failed.is_empty() && !swept.removed_sessions.is_empty(), "{swept:?}");
    let left = files_below(&jobs.path);
    assert!(left.is_empty(), "{} files are left: {:?}", left.len(), &left[..left.len().min(20)]);
    if let Some(disk) = &jobs.disk {
        // One page, for the key.
        assert!(disk.used() <= 4096, "{} bytes are taken", disk.used());
    }
}

/// Everything in the jobs directory but its own folders, when they are empty, and its key.
fn files_below(jobs: &Path) -> Vec<PathBuf> {
    let own =
        [".sessions", ".instances", ".trash", ".journal", ".key", ".t"].map(|it| jobs.join(it));
    let (mut found, mut next) = (Vec::new(), vec![jobs.to_owned()]);
    while let Some(folder) = next.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.is_symlink() {
                next.push(path.clone());
            }
            if !own.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

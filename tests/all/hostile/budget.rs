//! One budget for the bytes that are held for clients: many who send slowly and many who never read
//! take nothing from a client that behaves, and the memory is back when they are gone.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pontoon_tests::cgroup::MemoryCgroup;
use pontoon_tests::client::{Modern, Response, Speaker};
use pontoon_tests::program;
use pontoon_tests::rig::{Binaries, Plan, Rig, wait_until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use super::echoes;
use crate::{binaries, fixture, plan};

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_secs(30);

/// A bridge, but not its servers, with this much address space and a quarter of it as its budget, that is
/// told who its users are.
fn small_bridge(mib: usize) -> Rig {
    let plan = plan([fixture("stateful")]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.1");
    let rig = plan.variable("MCPO_MEMORY_BUDGET", &format!("{}MiB", mib / 4)).start();
    let bytes = Some((mib * MIB) as u64);
    let pid = Pid::from_raw(rig.pid().cast_signed());
    prlimit(pid, Resource::As, Rlimit { current: bytes, maximum: bytes }).unwrap();
    rig
}

/// A bridge that a shell starts after these commands, with the budget that it finds by itself.
fn bridge_after(commands: &str) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let pontoon = binaries().pontoon.display().to_string();
    let script = format!("{commands}; exec '{pontoon}' \"$@\"");
    let pontoon = program::script(&folder.path().join("bridge.sh"), &script);
    let plan = plan([fixture("stateful")]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.1");
    Plan { binaries: Binaries { pontoon, ..plan.binaries }, ..plan }.start()
}

/// A bridge in a cgroup; its servers count there, too.
fn bridge_in(cgroup: &Path) -> Rig {
    bridge_after(&format!("echo $$ > '{}/cgroup.procs' || exit", cgroup.display()))
}

fn budget(rig: &Rig) -> usize {
    rig.metric("pontoon_held_bytes_limit") as usize
}

#[test]
fn the_budget_is_a_quarter_of_what_the_bridge_may_use() {
    let rig = bridge_after(&format!("ulimit -v {}", 2048 * 1024));
    assert_eq!(budget(&rig), 512 * MIB);
    rig.stop();
    let Some(cgroup) = MemoryCgroup::make((512 * MIB) as u64) else { return };
    let rig = bridge_in(cgroup.inner());
    assert_eq!(budget(&rig), 128 * MIB, "the limit is that of the cgroup above its own");
    rig.stop();
}

/// As a container sees it: the cgroup of the container is the root of what is mounted, while the
/// process is told its whole path. Inside, a service has a limit of its own.
#[test]
fn the_budget_of_a_service_in_a_container_is_a_quarter_of_its_own_limit() {
    let Some(container) = MemoryCgroup::make((1024 * MIB) as u64) else { return };
    let service = container.inner().join("memory.limit_in_bytes");
    if !service.exists() {
        return println!("skipped: such containers have version 1 of cgroups");
    }
    fs::write(service, (512 * MIB).to_string()).unwrap();
    let (outer, mounted) = (container.limited().display(), "/sys/fs/cgroup/memory");
    let rig = bridge_after(&format!(
        "if [ -z \"$MOUNTED\" ]; then MOUNTED=1 exec unshare -m \"$0\" \"$@\"; fi; \
         echo $$ > {outer}/inner/cgroup.procs && mount --bind {outer} {mounted} || exit"
    ));
    assert_eq!(budget(&rig), 128 * MIB);
    rig.stop();
}

fn client(rig: &Rig, user: &str) -> Modern {
    Modern::with(&rig.endpoint("fixture"), &[("X-OpenWebUI-User-Id", user)])
}

/// The head of a request with a body of this size, and the first part of the body.
fn begin_body(rig: &Rig, user: &str, size: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(rig.address()).unwrap();
    let host = rig.address();
    let head = format!(
        "POST /mcp/fixture HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nX-OpenWebUI-User-Id: {user}\r\n\
         Content-Length: {size}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // One that is refused is also cut off.
    let _ = stream.set_write_timeout(Some(SOON));
    let _ = stream.write_all(&vec![b' '; sent]);
    stream
}

/// What a connection was told, if it was told anything within a moment.
fn told(stream: &mut TcpStream) -> String {
    let mut text = vec![0; 2048];
    stream.set_nonblocking(true).unwrap();
    let length = stream.read(&mut text).unwrap_or_default();
    String::from_utf8_lossy(&text[..length]).into_owned()
}

fn held(rig: &Rig) -> usize {
    rig.metric("pontoon_held_bytes") as usize
}

#[test]
fn an_announced_length_takes_no_memory() {
    let rig = small_bridge(512);
    let before = rig.resident_bytes();
    let streams: Vec<_> =
        (0..350).map(|n| begin_body(&rig, &format!("user-{n}"), 10 * MIB, 1)).collect();
    echoes(&mut client(&rig, "honest"), 1);
    let grown = rig.resident_bytes().saturating_sub(before) / MIB as u64;
    assert!(grown < 60, "{grown} MiB for {} bytes", streams.len());
    assert_eq!(held(&rig), 0);
    drop(streams);
    rig.stop();
}

#[test]
fn slow_senders_and_those_who_never_read_leave_the_others_alone() {
    let rig = small_bridge(512);
    withstand_the_crowd(&rig);
    rig.stop();
}

/// The servers have their answers there, too, and each is smaller than the bridge, which the system would
/// end first.
#[test]
fn in_a_cgroup_of_512_mib_they_do_so_without_a_setting() {
    let Some(cgroup) = MemoryCgroup::make((512 * MIB) as u64) else { return };
    let rig = bridge_in(cgroup.inner());
    withstand_the_crowd(&rig);
    rig.stop();
}

/// 200 clients that send slowly and 200 that never read come and go, while one behaves.
fn withstand_the_crowd(rig: &Rig) {
    let limit = budget(rig);
    echoes(&mut client(rig, "honest"), 1);
    let before = rig.resident_bytes();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let mut client = client(rig, "honest");
            let mut calls = 0;
            while !is_over.load(Ordering::Relaxed) || calls < 100 {
                echoes(&mut client, calls);
                calls += 1;
            }
            calls
        });
        let slow: Vec<_> = thread::scope(|scope| {
            let one = |n: usize| begin_body(rig, &format!("slow-{}", n % 20), 10 * MIB, 2 * MIB);
            let some = move |from: usize| (from..from + 50).map(one).collect::<Vec<_>>();
            let hands: Vec<_> = (0..4).map(|hand| scope.spawn(move || some(hand * 50))).collect();
            hands.into_iter().flat_map(|hand| hand.join().unwrap()).collect()
        });
        let mut deaf = Vec::new();
        for n in 0..200 {
            let deaf_one = client(rig, &format!("deaf-{}", n % 10));
            deaf.push(deaf_one.send_call(1, "big", json!({"bytes": 4 * MIB})));
        }
        wait_until("the budget is used up", SOON, || held(rig) > limit / 2);
        let mut told: Vec<_> = slow.into_iter().map(|mut it| (told(&mut it), it)).collect();
        let refused = |status: &str| {
            let has = |text: &&String| {
                text.starts_with(&format!("HTTP/1.1 {status}")) && text.contains("retry-after: 5")
            };
            told.iter().map(|(text, _)| text).filter(has).count()
        };
        let (busy, greedy) = (refused("503"), refused("429"));
        assert!(busy + greedy > 50, "{busy} were told 503, {greedy} 429");
        assert!(held(rig) <= limit, "{} of {limit}", held(rig));
        is_over.store(true, Ordering::Relaxed);
        assert!(honest.join().unwrap() >= 100);
        told.clear();
        deaf.clear();
    });
    wait_until("nothing is held", SOON, || held(rig) == 0);
    wait_until("the memory is back", SOON, || {
        rig.resident_bytes().saturating_sub(before) < 60 * MIB as u64
    });
    echoes(&mut client(rig, "honest"), 1);
}

#[test]
fn one_client_has_its_share_and_is_told_how_to_go_on() {
    let rig = small_bridge(512);
    // Nine answers of 4 MiB are more than a quarter of the budget.
    let greedy = client(&rig, "greedy");
    let waiting: Vec<_> =
        (0..9).map(|id| greedy.send_call(id, "big", json!({"bytes": 4 * MIB}))).collect();
    let refused = |response: &Response| response.head.status == 429;
    let ask = || client(&rig, "greedy").call(1, "echo", json!({"text": "x"}));
    wait_until("it has its share", SOON, || refused(&ask()));
    let response = ask();
    assert_eq!(response.head.header("retry-after"), Some("5"));
    assert!(response.error_text().contains("take the answers that are waiting"), "{response:?}");
    echoes(&mut client(&rig, "another"), 1);
    for answer in waiting {
        assert_eq!(answer.begin().unwrap().finish().unwrap().0.status(), 200);
    }
    wait_until("it may go on", SOON, || !refused(&ask()));
    rig.stop();
}

#[test]
fn an_answer_for_which_there_is_no_room_is_waited_for_and_then_told_as_lost() {
    let plan = plan([fixture("stateful")]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.1");
    let rig = plan.variable("MCPO_MEMORY_BUDGET", "16MiB").start();
    let big = |bytes: usize| json!({"bytes": bytes});
    let whole = client(&rig, "a").call(1, "big", big(8 * MIB));
    assert_eq!(whole.status(), 200, "{}", whole.error_text());
    drop(whole);
    let unfinished = begin_body(&rig, "slow", 10 * MIB, 10 * MIB - 1);
    wait_until("the body is held", SOON, || held(&rig) >= 9 * MIB);
    // Room comes in time.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client(&rig, "a").call(1, "big", big(8 * MIB)));
        wait_until("the answer waits", SOON, || held(&rig) > 12 * MIB);
        drop(unfinished);
        assert_eq!(waiting.join().unwrap().status(), 200);
    });
    // It does not: more than the whole budget never fits.
    let lost = client(&rig, "a").call(1, "big", big(20 * MIB));
    assert_eq!(lost.told_status(), 502, "{}", lost.error_text());
    assert!(lost.error_text().contains("MCPO_MEMORY_BUDGET"), "{}", lost.error_text());
    wait_until("nothing is held", SOON, || held(&rig) == 0);
    rig.stop();
}

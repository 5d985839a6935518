//! What a server may use, and what happens when it takes more: memory, processes, time, files, and
//! the network it was not given.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use pontoon_tests::client::{Response, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::{Value, json};

use super::{ADA, Place, SOON, attempt, check, client, is_root, levels, outcomes, serves, walled};

const MIB: u64 = 1 << 20;

/// A bridge whose server has this limit at this level.
fn limited(place: &Place, level: &str, limit: &str, value: impl Into<Value>) -> Rig {
    let mut isolation = json!({"level": level});
    isolation[limit] = value.into();
    place.plan([place.rude(isolation).with("mode", "stateless")]).start()
}

/// The call failed because its process ended, which says how.
#[track_caller]
fn assert_ended(response: &Response, says: &str) {
    let told = response.error_text();
    assert_eq!(response.told_status(), 502, "{}", response.text());
    assert!(told.contains(says), "{says:?} is not in {told:?}");
}

#[test]
fn a_fork_bomb_ends_at_the_limit_and_leaves_nothing() {
    // Elsewhere it is refused at the start: see `systems`.
    for level in walled().into_iter().filter(|_| is_root()) {
        let place = Place::new();
        let rig = limited(&place, level, "processes", 20);
        let heard = outcomes(&attempt(&rig, ADA, &[&["fork", "500"]]));
        let (count, why) = heard[0].split_once(' ').unwrap();
        assert_eq!(why, "EAGAIN", "{level}: {heard:?}");
        assert!((1..20).contains(&count.parse::<u32>().unwrap()), "{level}: {heard:?}");
        wait_until("they are gone", SOON, || {
            rig.descendants().iter().all(|process| process.name != "sleep")
        });
        serves(&rig);
        rig.stop();
    }
}

#[test]
fn memory_ends_at_the_limit() {
    for level in levels() {
        let place = Place::new();
        let rig = limited(&place, level, "memory", "64MiB");
        check(&rig, ADA, &[(&["take", &(16 * MIB).to_string()], "ok")]);
        let response = attempt(&rig, ADA, &[&["take", &(512 * MIB).to_string()]]);
        // Refused where each process is limited by itself, ended where the whole tree is.
        match response.tool_text() {
            Some(_) => assert_eq!(outcomes(&response), ["ENOMEM"]),
            None => assert_ended(&response, "its memory was used up"),
        }
        serves(&rig);
        rig.stop();
    }
}

#[test]
fn a_file_ends_at_the_exact_byte() {
    for level in levels() {
        let place = Place::new();
        let rig = limited(&place, level, "file_size", 3 * MIB + 1);
        let response = attempt(&rig, ADA, &[&["fill", "large"]]);
        assert_ended(&response, "grew over its limit (SIGXFSZ)");
        let jobs = fs::read_dir(place.path("jobs")).unwrap();
        let files = jobs.map(|job| job.unwrap().path().join("files/large"));
        let large: Vec<_> = files.filter_map(|file| fs::metadata(file).ok()).collect();
        assert_eq!(
            large.iter().map(fs::Metadata::len).collect::<Vec<_>>(),
            [3 * MIB + 1],
            "{level}"
        );
        serves(&rig);
        rig.stop();
    }
}

#[test]
fn computing_ends_at_the_limit() {
    for level in levels() {
        let place = Place::new();
        let rig = limited(&place, level, "cpu", "1s");
        assert_ended(&attempt(&rig, ADA, &[&["spin"]]), "processor time was used up (SIGXCPU)");
        serves(&rig);
        rig.stop();
    }
}

#[test]
fn open_files_end_at_the_limit() {
    for level in levels() {
        let place = Place::new();
        let rig = limited(&place, level, "open_files", 32);
        let heard = outcomes(&attempt(&rig, ADA, &[&["files", "500"]]));
        assert_eq!(heard, ["29 EMFILE"], "{level}: three are its streams");
        serves(&rig);
        rig.stop();
    }
}

#[test]
fn a_life_ends_at_the_limit() {
    for level in levels() {
        let place = Place::new();
        let rig = limited(&place, level, "run_time", "1s");
        let begun = Instant::now();
        let response = client(&rig, "rude", ADA).call(1, "wait", json!({"ms": 60_000}));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_ended(&response, "its time to live was over (`run_time`)");
        serves(&rig);
        rig.stop();
    }
}

#[test]
fn a_chat_goes_on_with_a_new_process_after_a_limit() {
    let place = Place::new();
    let isolation = json!({"level": "confined", "cpu": "1s"});
    let rig = place.plan([place.rude(isolation).with("mode", "stateful")]).start();
    check(&rig, ADA, &[(&["create", "kept"], "ok")]);
    assert_ended(&attempt(&rig, ADA, &[&["spin"]]), "processor time was used up (SIGXCPU)");
    // It is told once that its process was lost; its files are not.
    attempt(&rig, ADA, &[&["read", "kept"]]);
    check(&rig, ADA, &[(&["read", "kept"], "ok"), (&["create", "kept"], "EEXIST")]);
    rig.stop();
}

#[test]
fn without_a_network_nobody_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let tcp = listener.local_addr().unwrap().to_string();
    let udp = receiver.local_addr().unwrap().to_string();
    let nobody = "ECONNREFUSED|ENETUNREACH|EAFNOSUPPORT|EACCES";
    for level in levels() {
        let place = Place::new();
        for mode in ["stateless", "stateful"] {
            let isolation = json!({"level": level, "network": "none"});
            let rig = place.plan([place.rude(isolation).with("mode", mode)]).start();
            let bridge = rig.address().to_string();
            check(
                &rig,
                ADA,
                &[
                    (&["connect", &tcp], nobody),
                    (&["connect", &bridge], nobody),
                    (&["connect", "192.0.2.1:80"], nobody),
                    (&["send", "192.0.2.1:53"], nobody),
                    // Its own loopback may swallow it, and it may listen to itself.
                    (&["send", &udp], "ok|ECONNREFUSED|EAFNOSUPPORT"),
                    (&["listen"], "ok|EAFNOSUPPORT"),
                ],
            );
            assert!(receiver.recv_from(&mut [0]).is_err(), "{level}: it came through");
            rig.stop();
        }
    }
}

#[test]
fn what_a_server_listens_on_without_a_network_is_no_port_of_ours() {
    let place = Place::new();
    let isolation = json!({"level": "confined", "network": "none"});
    let server = place.fixture(isolation);
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = place.plan([server, place.rude("confined").with("mode", "stateful")]).start();
    // A server with a network reaches the bridge, and what listens on this machine: documented.
    let address = held.local_addr().unwrap().to_string();
    check(&rig, ADA, &[(&["connect", &address], "ok"), (&["listen"], "ok")]);
    rig.stop();
}

//! The rig itself, tried on small fakes of the bridge: it must see what is left behind.

use super::*;
use crate::program;

/// A bridge in shell: says that it listens where a thread of ours answers, then does `then`.
fn fake(then: &str) -> (TempDir, Rig) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer_health(stream);
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("pontoon");
    program::script(&program, &format!("echo 'x listening on http://{address} y' >&2\n{then}"));
    let nowhere = PathBuf::from("/nowhere");
    let binaries =
        Binaries { pontoon: program, rude_server: nowhere.clone(), fixture_server: nowhere };
    (directory, Plan::new(binaries, []).start())
}

fn answer_health(mut stream: std::net::TcpStream) {
    use std::io::{Read, Write};
    let mut heard = [0; 1024];
    let _ = stream.read(&mut heard);
    let body = r#"{"running":0,"permits_in_use":0,"sessions":0}"#;
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}", body.len());
    let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
}

/// The message of the panic that `then` has to end in.
fn complaint(then: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(then).expect_err("the rig has to complain");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_clean_stop_passes() {
    let (_directory, rig) = fake("trap 'exit 0' TERM; while :; do sleep 0.05; done");
    rig.stop();
}

#[test]
fn a_wrong_exit_code_is_noticed() {
    let (_directory, rig) = fake("trap 'exit 3' TERM; while :; do sleep 0.05; done");
    let said = complaint(std::panic::AssertUnwindSafe(|| rig.stop()));
    assert!(said.contains("exit status: 3"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_orphan_is_noticed_by_its_tag_and_killed() {
    let (_directory, rig) =
        fake("(sleep 600 &) ; trap 'exit 0' TERM; while :; do sleep 0.05; done");
    let tag = rig.tag.clone();
    wait_until("the orphan runs", START, || {
        processes::tagged(TAG, &tag).iter().any(|it| it.name == "sleep" && it.parent != rig.pid())
    });
    let said = complaint(std::panic::AssertUnwindSafe(|| rig.stop()));
    assert!(said.contains("processes are left") && said.contains("sleep"), "{said}");
    wait_until("the orphan is killed", START, || processes::tagged(TAG, &tag).is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_without_its_environment_is_noticed_by_descent() {
    let (_directory, rig) =
        fake("env -i sleep 601 & trap 'exit 0' TERM; while :; do sleep 0.05; done");
    wait_until("the child runs", START, || {
        rig.watcher.seen().iter().any(|it| it.name == "sleep")
            && rig.descendants().iter().any(|it| {
                std::fs::read(format!("/proc/{}/cmdline", it.pid))
                    .is_ok_and(|line| line.starts_with(b"sleep\x00601"))
            })
    });
    let said = complaint(std::panic::AssertUnwindSafe(|| rig.stop()));
    assert!(said.contains("processes are left"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_bridge_that_leaves_a_child_is_noticed() {
    let (_directory, rig) = fake("sleep 602 & wait");
    wait_until("the child runs", START, || rig.descendants().iter().any(|it| it.name == "sleep"));
    let said = complaint(std::panic::AssertUnwindSafe(|| rig.kill_9()));
    assert!(said.contains("processes are left"), "{said}");
}

#[test]
fn the_address_is_found_in_any_line() {
    let wanted = SocketAddr::from(([127, 0, 0, 1], 8080));
    for line in
        ["listening on http://127.0.0.1:8080", "x listening on http://127.0.0.1:8080/mcp, y"]
    {
        assert_eq!(listening_address(line), Some(wanted), "{line}");
    }
    assert_eq!(listening_address("listening on http://nowhere"), None);
}

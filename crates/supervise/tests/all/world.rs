//! What the tests see of the system, and the frame each of them runs in.

use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pontoon_supervise::{Child, ChildInput, ChildOutput, Command, Ladder, Spawner, Starting};
use tokio::io::AsyncReadExt;

/// No wait in a test is longer. Generous, as other builds may have the machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a test in a runtime of its own, and checks that it leaves no process behind.
pub(crate) fn in_runtime<F: Future<Output = ()>>(
    starting: Starting,
    test: impl FnOnce(Spawner) -> F,
) {
    let pid = starting.pid();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let spawner = starting.attach().expect("attached");
        tokio::time::timeout(2 * DEADLINE, test(spawner.clone())).await.expect("in time");
        eventually("all children ended", || spawner.living() == 0).await;
        // An orphan that came to us last may still have to be reaped.
        eventually("nothing left below the spawner", || children_of(pid).is_empty()).await;
    });
    drop(runtime);
    // Its handles are gone, so it must be as well.
    wait_until("the spawner ended", || state_of(pid).is_none_or(|state| state == 'Z'));
}

/// `/bin/sh -c script` with a path and nothing else.
pub(crate) fn sh(script: &str) -> Command {
    Command {
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        ..Command::new("/bin/sh")
    }
}

/// Everything a command writes, when it is left alone.
pub(crate) async fn output(spawner: &Spawner, command: &Command) -> String {
    let mut child = spawner.spawn(command).await.expect("started");
    let (input, mut output) = child.take_streams().expect("taken once");
    drop(input);
    let mut text = String::new();
    output.read_to_string(&mut text).await.expect("text");
    child.exited().await;
    text
}

/// Starts a command and waits for its first line of output.
pub(crate) async fn start(
    spawner: &Spawner,
    command: &Command,
) -> (Child, ChildInput, ChildOutput, String) {
    let mut child = spawner.spawn(command).await.expect("started");
    let (input, mut output) = child.take_streams().expect("taken once");
    let mut line = String::new();
    let reading = async {
        loop {
            match output.read_u8().await {
                Ok(b'\n') => break,
                Ok(byte) => line.push(char::from(byte)),
                Err(error) => panic!("no line after {line:?}: {error}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("a line in time");
    (child, input, output, line)
}

/// A ladder for the impatient.
pub(crate) fn quick() -> Ladder {
    Ladder { after_close: Duration::from_millis(50), after_terminate: Duration::from_millis(50) }
}

/// Waits for what must come true.
pub(crate) async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The same where there is no runtime.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    began.elapsed()
}

/// Whether the process runs; one that ended and was not reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

pub(crate) fn state_of(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// The children of a process, ended ones included.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    processes().filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent)).collect()
}

/// The fields of `/proc/PID/stat` from the third on: state, parent, group, session.
pub(crate) fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The processes with `mark` in their arguments.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    processes()
        .filter(|pid| {
            let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(mark)
        })
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The memory of this process that is in use, in bytes.
pub(crate) fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0, "signal {signal} to {pid}");
}

/// Opens descriptors that are inherited by whatever is started carelessly.
pub(crate) fn leak_descriptors(count: usize) {
    for _ in 0..count {
        let file = std::fs::File::open("/dev/zero").expect("it is there").into_raw_fd();
        // SAFETY: clears a flag of a descriptor that was just opened and is never closed.
        unsafe { libc::fcntl(file, libc::F_SETFD, 0) };
    }
}

/// A program with children of every kind that waits to be killed. Says a line when all run.
pub(crate) fn victim(mark: &str) -> ExitCode {
    let starting = Spawner::start().expect("a spawner");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime
        .block_on(async {
            let spawner = starting.attach().expect("attached");
            let mut kept = Vec::new();
            for script in [
                "echo ready; exec sleep 1000",
                "trap '' TERM HUP INT; echo ready; while :; do sleep 1000; done",
                "sleep 1000 & sleep 1000 & echo ready; wait",
                "env -i setsid sh -c 'setsid sleep 1000 <&- >&- 2>&- & ' ; echo ready; sleep 1000",
            ] {
                // The mark goes where even a program with an empty environment carries it.
                let script = script.replace("sleep 1000", &format!("sleep 1000.{mark}"));
                kept.push(start(&spawner, &sh(&script)).await);
            }
            println!("{}", spawner.pid());
            std::io::stdout().flush().expect("read by the test");
            // Until killed, or until the test is gone.
            tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await
        })
        .expect("read")
        .expect("read");
    ExitCode::SUCCESS
}

//! Rudeness of the process itself: floods, deaths, children, deafness.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use crate::{How, Rude, framing};

/// Set in the environment once SIGTERM is ignored.
const IS_DEAF: &str = "RUDE_SERVER_IS_DEAF";

/// What happens before anything is read.
pub(crate) fn start(rude: &Rude) {
    if rude.is(How::Deaf) && std::env::var_os(IS_DEAF).is_none() {
        ignore_signals();
    }
    if rude.is(How::SlowStart) {
        std::thread::sleep(Duration::from_millis(rude.ms));
    }
    if rude.is(How::StderrSecret) {
        complain("Authorization: Bearer sk-live-0123456789abcdef0123456789abcdef");
        complain("connecting to postgres://admin:hunter2@db.example/prod");
        complain("API_KEY=AKIAIOSFODNN7EXAMPLE");
    }
    if rude.is(How::Fork) {
        start_children(rude);
    }
    if rude.is(How::FloodStderr) {
        std::thread::spawn(|| while complain(&"stderr ".repeat(100)) {});
    }
    if rude.is(How::Banner) {
        framing::write_bytes(b"** Welcome to the rude server **\n{not json}\n\n[1, 2\n");
    }
    if rude.is(How::WritesBeforeReads) {
        let line = format!("[debug] {}\n", "loading ".repeat(15));
        let times = rude.bytes.unwrap_or(1 << 20).div_ceil(line.len());
        framing::write_bytes(line.repeat(times).as_bytes());
    }
    if rude.is_rude_from_start {
        stall(rude);
    }
}

/// Does what it was told to do in place of an answer to the call `id`, and says whether it did.
pub(crate) fn is_rude_to_call(rude: &Rude, id: &Value) -> bool {
    stall(rude);
    if rude.is(How::LongLine) {
        framing::write_long(id, rude.bytes.unwrap_or(400_000_000));
        return true;
    }
    if rude.is(How::DieMidLine) {
        let half = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"te"#);
        framing::write_bytes(half.as_bytes());
        std::process::exit(9);
    }
    framing::IS_LAST.store(rude.is(How::Unended), Ordering::Relaxed);
    rude.is(How::Hang)
}

/// What happens once a call was answered.
pub(crate) fn after_answer(rude: &Rude) {
    if rude.is(How::DieAfterOne) || rude.is(How::Unended) {
        framing::flush();
        std::process::exit(0);
    }
}

/// What happens at the end of the input.
pub(crate) fn end(rude: &Rude) -> ExitCode {
    if rude.is(How::SlowExit) {
        std::thread::sleep(Duration::from_millis(rude.ms));
    }
    framing::flush();
    while rude.is(How::Deaf) {
        std::thread::park();
    }
    ExitCode::SUCCESS
}

/// Writes a line to stderr, and says whether that worked.
pub(crate) fn complain(line: &str) -> bool {
    writeln!(io::stderr(), "{line}").is_ok()
}

/// Floods or freezes, if told so, and then never returns.
fn stall(rude: &Rude) {
    while rude.is(How::FloodStdout) {
        framing::write_bytes(&[b'#'; 1 << 16]);
    }
    while rude.is(How::FloodLines) {
        framing::write_bytes("[debug] nothing new\n".repeat(1 << 10).as_bytes());
    }
    while rude.is(How::Freeze) {
        std::thread::park();
    }
}

/// Starts this program again as a process that ignores signals; its pid stays the same.
fn ignore_signals() {
    let Ok(program) = std::env::current_exe() else { return };
    // A shell's `trap` outlives `exec`, and needs no unsafe code of ours.
    let script = r#"trap "" TERM INT HUP; exec "$0" "$@""#;
    #[expect(clippy::disallowed_methods, reason = "this replaces the process and starts none")]
    let mut shell = Command::new("sh");
    let error = shell
        .args(["-c", script])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(IS_DEAF, "1")
        .exec();
    complain(&format!("rude-server: not deaf: {error}"));
}

/// Closes the input, says `answer`, and neither reads nor says anything more for ten minutes.
pub(crate) fn close_input(answer: &Value) {
    // As above: a shell closes it without unsafe code of ours, and the pid stays the same.
    let script = r#"exec 0<&-; printf '%s\n' "$0"; exec sleep 600"#;
    #[expect(clippy::disallowed_methods, reason = "this replaces the process and starts none")]
    let mut shell = Command::new("sh");
    let error = shell.args(["-c", script]).arg(answer.to_string()).exec();
    complain(&format!("rude-server: the input is open: {error}"));
}

/// Starts one child in this process's group, and one that left group, session and parent.
///
/// Both write their pid to the file, and end by themselves after ten minutes at the latest.
fn start_children(rude: &Rude) {
    let Some(pids) = &rude.pids else { return };
    let script = r#"echo $$ >> "$0"; exec sleep 600"#;
    for program in [&["sh"][..], &["setsid", "--fork", "sh"]] {
        #[expect(clippy::disallowed_methods, reason = "children that leak are the point")]
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(["-c", script, pids]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = command.spawn() {
            complain(&format!("rude-server: no child: {error}"));
        }
    }
    // The handshake waits for both, so a test that saw it can rely on the file.
    for _ in 0..1000 {
        let lines = std::fs::read_to_string(pids).map_or(0, |text| text.lines().count());
        if lines >= 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

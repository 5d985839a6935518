//! Processes: how they are started and stopped here, and what the system tells of them.
//!
//! What was started ends with its [`Running`], or all at once with a signal such as that of Ctrl-C.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// The clock ticks of `/proc`, a hundred a second on every Linux there is.
const TICK: Duration = Duration::from_millis(10);

/// The processes below those that were stopped, with their start times, to look for at the end.
static SEEN: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());

fn seen() -> MutexGuard<'static, Vec<(u32, u64)>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where everything of this run lies.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// A directory of this run.
pub(crate) fn directory() -> TempDir {
    let whole = DIRECTORY.get().expect("made before anything else");
    TempDir::new_in(whole).expect("a directory")
}

/// Makes the directory of this run, and sees to it that Ctrl-C and the like leave nothing behind.
pub(crate) fn end_all_on_a_signal() -> TempDir {
    let directory = TempDir::with_prefix("pontoon-bench-").expect("a directory");
    let whole = DIRECTORY.get_or_init(|| directory.path().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let enter = runtime.enter();
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(|kind| signal(kind).expect("a signal that can be caught"));
    drop(enter);
    thread::spawn(move || {
        let [interrupt, terminate, hangup] = &mut signals;
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} _ = hangup.recv() => {} }
        });
        IS_ENDING.store(true, Ordering::Relaxed);
        // Callers whose bridge ends would tell of it.
        std::panic::set_hook(Box::new(|_| {}));
        end_all();
        drop(fs::remove_dir_all(whole));
        std::process::exit(130);
    });
    directory
}

/// A signal came, and everything is being ended.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Ends everything that runs below this process: what it started itself gets a chance to end in order, once.
fn end_all() {
    let all: Vec<_> =
        below(std::process::id()).into_iter().filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let send = |pid: u32, signal| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // An error means that it has ended already, which is what we want.
        pid.map(|pid| kill_process(pid, signal).ok());
    };
    let own = all.iter().filter(|(_, stat)| stat.parent == std::process::id());
    own.for_each(|(pid, _)| send(*pid, Signal::TERM));
    let left = || all.iter().filter(|(pid, stat)| is_left(&(*pid, stat.started)));
    let began = Instant::now();
    while left().count() > 0 && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(20));
    }
    left().for_each(|(pid, _)| send(*pid, Signal::KILL));
}

/// A process that is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

/// A command with its input and output piped, which inherits no settings of Pontoon.
#[expect(clippy::disallowed_methods, reason = "the floor starts processes as directly as can be")]
pub(crate) fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MCPO_") {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

impl Running {
    /// Starts a process.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        while IS_ENDING.load(Ordering::Relaxed) {
            // The process ends as soon as all of them have.
            thread::park();
        }
        let below = below(self.id());
        seen().extend(below.into_iter().filter_map(|pid| Some((pid, stat(pid)?.started))));
        drop(self.0.stdin.take());
        let pid = Pid::from_child(&self.0);
        let began = Instant::now();
        // An error means that it has ended already, which is what we want.
        let _ = kill_process(pid, Signal::TERM);
        while matches!(self.0.try_wait(), Ok(None)) {
            if began.elapsed() > Duration::from_secs(10) {
                drop(self.0.kill());
                drop(self.0.wait());
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The processes that were started here and still run, after a moment to end in.
pub(crate) fn left() -> Vec<u32> {
    let seen = seen();
    let began = Instant::now();
    loop {
        let left: Vec<u32> = seen.iter().filter(|it| is_left(it)).map(|(pid, _)| *pid).collect();
        if left.is_empty() || began.elapsed() > Duration::from_secs(5) {
            return left;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn is_left((pid, started): &(u32, u64)) -> bool {
    stat(*pid).is_some_and(|stat| stat.started == *started && !stat.is_zombie)
}

/// What `/proc/PID/stat` tells: the parent, the time on a processor, the start.
#[derive(Debug, Clone, Copy)]
struct Stat {
    parent: u32,
    own: Duration,
    /// Of children that have ended.
    ended: Duration,
    started: u64,
    /// It has ended, and its parent does not know yet.
    is_zombie: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything, so fields count from its end.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = |at: usize| TICK * u32::try_from(number(at).unwrap_or(0)).unwrap_or(0);
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: ticks(11) + ticks(12),
        ended: ticks(13) + ticks(14),
        started: number(19)?,
        is_zombie: fields.first() == Some(&"Z"),
    })
}

/// The processes below this one.
pub(crate) fn below(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("a Linux system");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parents: BTreeMap<u32, u32> =
        pids.filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, its)| **its == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Waits, but not long, until no more than this many processes are below this one.
pub(crate) fn wait_for_few_below(pid: u32, few: usize) {
    let began = Instant::now();
    while below(pid).len() > few && began.elapsed() < Duration::from_secs(2) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// User and system time of these processes until now.
pub(crate) fn processor_time(pids: &[u32]) -> Duration {
    let time = |pid: &u32| time_of_threads(*pid).or_else(|| Some(stat(*pid)?.own));
    pids.iter().filter_map(time).sum()
}

/// The same time of the threads that live, in nanoseconds where ticks are too coarse. No process that
/// is looked at here ends threads while it is measured.
fn time_of_threads(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let time = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
    };
    threads.map(|thread| time(thread.ok()?)).sum()
}

/// User and system time of this process's children that have ended.
pub(crate) fn processor_time_of_ended(pid: u32) -> Duration {
    stat(pid).map_or(Duration::ZERO, |stat| stat.ended)
}

/// User and system time of this process, its threads and its children that have ended.
pub(crate) fn processor_time_here() -> Duration {
    stat(std::process::id()).map_or(Duration::ZERO, |stat| stat.own + stat.ended)
}

/// A size in bytes from `/proc/PID/status`, such as `VmRSS`.
pub(crate) fn size(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

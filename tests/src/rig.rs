//! The rig: the real binary on a free port, in a directory of its own, and nothing left after.
//!
//! [`Rig::stop`] ends the bridge as an operator does and fails the test when a call, a permit, a
//! session, a connection, a process or a zombie is left. Each process of a rig carries a tag in
//! its environment, children and grandchildren too, so none can hide by changing its parent; those
//! that drop their environment are known from walks of the tree while the bridge ran.

mod plan;
pub mod processes;
mod wait;
mod watcher;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::client::{Endpoint, Request, Response};
use crate::tls;

pub use plan::{Binaries, Plan, Server};
use processes::Process;
pub use wait::{holds_within, remove_in_use, wait_until};
use watcher::Watcher;

/// The configuration file.
const CONFIG: &str = "mcp-servers.json";
/// The variable that carries the tag.
const TAG: &str = "PONTOON_RIG";
/// How long the bridge may take to listen, and each server to be learnt.
const START: Duration = Duration::from_secs(30);
/// How long open work may take to settle before a stop.
const SETTLE: Duration = Duration::from_secs(15);
/// How long a stop may take: the whole stop ladder, and some.
const STOP: Duration = Duration::from_secs(30);
/// How long a process may outlive a bridge that was killed.
const AFTERLIFE: Duration = Duration::from_secs(1);
/// How long one may outlive a bridge that ended in order, where no time is promised.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running bridge. Dropped without [`Rig::stop`], it is killed with all that belongs to it.
#[derive(Debug)]
pub struct Rig {
    bridge: Child,
    /// Where clients call: the bridge itself, or a tunnel to it.
    address: SocketAddr,
    /// Where the bridge listens.
    bound: SocketAddr,
    directory: TempDir,
    tag: String,
    programs: Vec<PathBuf>,
    /// What it printed on both outputs, in the order it came.
    printed: Arc<Mutex<String>>,
    /// What it logged: its standard output alone.
    log: Arc<Mutex<String>>,
    watcher: Watcher,
    /// An API key of the bridge, to be told everything.
    key: Option<String>,
}

impl Rig {
    fn start(plan: &Plan) -> Self {
        let directory =
            tempfile::Builder::new().prefix("pontoon-rig-").tempdir().expect("a directory");
        let tag = new_tag();
        let config = directory.path().join(CONFIG);
        std::fs::write(&config, configuration(&plan.servers, &tag)).expect("a config");

        let mut command = bridge_command(&plan.binaries.pontoon, directory.path());
        command.env(TAG, &tag).envs(plan.variables.iter().cloned());
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
        command.args(&plan.arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut bridge = command.stderr(Stdio::piped()).spawn().expect("the bridge starts");

        let (printed, log) = <(Arc<Mutex<String>>, Arc<Mutex<String>>)>::default();
        let readers = [
            collect(bridge.stderr.take().expect("piped just above"), &[&printed]),
            collect(bridge.stdout.take().expect("piped just above"), &[&printed, &log]),
        ];
        let bound = wait_for_address(&mut bridge, &printed, &readers);
        let address = plan.tls.as_ref().map_or(bound, |tls| tls::tunnel(bound, tls));
        let watcher = Watcher::start(bridge.id());
        // The system tells the programs of processes without symbolic links.
        let programs =
            plan.servers.iter().filter_map(|it| it.command.canonicalize().ok()).collect();
        let key = plan.key();
        let rig =
            Self { bridge, address, bound, directory, tag, programs, printed, log, watcher, key };
        for server in plan.servers.iter().filter(|server| server.comes_up) {
            rig.wait_for_state(&server.name, "ready");
        }
        rig
    }

    /// Where clients without TLS call it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens.
    pub fn bound(&self) -> SocketAddr {
        self.bound
    }

    /// Where one of its servers is reached.
    pub fn endpoint(&self, server: &str) -> Endpoint {
        Endpoint { address: self.address, path: format!("/mcp/{server}") }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.bridge.id()
    }

    /// The directory it runs in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it has printed so far, its log included.
    pub fn stderr(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has logged so far, line by line.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it says of itself.
    ///
    /// # Panics
    ///
    /// When it says nothing.
    pub fn health(&self) -> Value {
        self.try_health().unwrap_or_else(|error| panic!("/health: {error}\n{}", self.stderr()))
    }

    /// What it says of itself, if it still does.
    ///
    /// # Errors
    ///
    /// When it is gone, or says something that is not JSON.
    pub fn try_health(&self) -> std::io::Result<Value> {
        Ok(serde_json::from_slice(&self.try_get("/health")?.body)?)
    }

    /// The answer to a GET, with the key of the bridge if it has one.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn get(&self, path: &str) -> Response {
        self.try_get(path).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.stderr()))
    }

    fn try_get(&self, path: &str) -> std::io::Result<Response> {
        let mut request = Request::new("GET", path).header("Connection", "close");
        if let Some(key) = &self.key {
            request = request.header("Authorization", &format!("Bearer {key}"));
        }
        request.send(self.address)
    }

    /// One of the numbers of `/health`.
    ///
    /// # Panics
    ///
    /// When it is not there.
    pub fn gauge(&self, name: &str) -> u64 {
        let health = self.health();
        health[name].as_u64().unwrap_or_else(|| panic!("no number `{name}` in {health}"))
    }

    /// Waits until a number of `/health` has this value.
    ///
    /// # Panics
    ///
    /// When it never has.
    pub fn wait_for_gauge(&self, name: &str, value: u64) {
        wait_until(&format!("{name} == {value}"), SETTLE, || self.gauge(name) == value);
    }

    /// Waits until a server is in this state.
    ///
    /// # Panics
    ///
    /// When it never is, or fails instead.
    pub fn wait_for_state(&self, server: &str, state: &str) {
        wait_until(&format!("{server} {state}"), START, || {
            let entry = self.health()["servers"][server].take();
            assert!(
                state == "failed" || entry["state"] != "failed",
                "{server} failed: {entry}\n{}",
                self.stderr()
            );
            entry["state"] == state
        });
    }

    /// Every process below the bridge.
    pub fn descendants(&self) -> Vec<Process> {
        processes::below(&processes::all(), self.pid())
    }

    /// The living processes below the bridge that run one of the configured programs.
    pub fn children(&self) -> Vec<Process> {
        let is_ours = |it: &Process| it.program().is_some_and(|path| self.programs.contains(&path));
        self.descendants().into_iter().filter(|it| !it.is_zombie() && is_ours(it)).collect()
    }

    /// Waits until there are so many children.
    ///
    /// # Panics
    ///
    /// When there never are.
    pub fn wait_for_children(&self, count: usize) {
        wait_until(&format!("{count} children"), SETTLE, || self.children().len() == count);
    }

    /// Resident memory of the bridge in bytes.
    pub fn resident_bytes(&self) -> u64 {
        processes::resident_bytes(self.pid()).unwrap_or_default()
    }

    /// The most memory the bridge ever had resident, in bytes.
    pub fn peak_resident_bytes(&self) -> u64 {
        processes::peak_resident_bytes(self.pid()).unwrap_or_default()
    }

    /// The number of descriptors the bridge has open.
    pub fn descriptors(&self) -> usize {
        processes::descriptors(self.pid()).unwrap_or_default()
    }

    /// Writes a configuration with these servers in place of the last; nobody is told.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write_config(&self, servers: &[Server]) {
        self.write_config_text(&configuration(servers, &self.tag));
    }

    /// Writes this text in place of the configuration, whole at once, as careful editors do.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write_config_text(&self, text: &str) {
        let whole = self.directory().join("written");
        std::fs::write(&whole, text).expect("a file in our own directory");
        std::fs::rename(whole, self.directory().join(CONFIG)).expect("the same directory");
    }

    /// A number of `/metrics`, by its name and labels as they stand there; 0 when it is not.
    ///
    /// # Panics
    ///
    /// When the page does not come.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Sends the bridge a signal.
    ///
    /// # Panics
    ///
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal).expect("the bridge runs");
    }

    /// Waits for the bridge to exit.
    ///
    /// # Panics
    ///
    /// When it does not within `deadline`.
    pub fn wait_for_exit(&mut self, deadline: Duration) -> ExitStatus {
        let mut status = None;
        wait_until("the bridge exits", deadline, || {
            status = self.bridge.try_wait().expect("the bridge is our child");
            status.is_some()
        });
        status.expect("waited for just above")
    }

    /// Stops it and fails the test if anything is left, a session included.
    ///
    /// # Panics
    ///
    /// When something is.
    pub fn stop(self) {
        self.stop_with_sessions(0);
    }

    /// Stops it while so many sessions are open, and fails the test if anything else is left.
    ///
    /// # Panics
    ///
    /// When something is.
    pub fn stop_with_sessions(mut self, sessions: u64) {
        self.expect_settled(sessions);
        self.watcher.look();
        self.signal(Signal::TERM);
        let status = self.wait_for_exit(STOP);
        assert!(status.success(), "the bridge ended with {status}\n{}", self.stderr());
        self.expect_nothing_left();
    }

    /// Waits until no call, permit or connection is open and so many sessions are.
    ///
    /// # Panics
    ///
    /// When something stays open.
    pub fn expect_settled(&self, sessions: u64) {
        let wanted = json!({"running": 0, "permits_in_use": 0, "sessions": sessions});
        let mut health = Value::Null;
        let settled = holds_within(SETTLE, || {
            health = self.health();
            wanted.as_object().into_iter().flatten().all(|(name, value)| health[name] == *value)
        });
        assert!(settled, "wanted {wanted}, left: {health}\n{}", self.stderr());
        let port = self.address.port();
        let closed = holds_within(SETTLE, || processes::connections_to(port) == 0);
        assert!(closed, "{} connections are left", processes::connections_to(port));
        let mut zombies = Vec::new();
        let collected = holds_within(SETTLE, || {
            zombies = self.descendants();
            zombies.retain(Process::is_zombie);
            zombies.is_empty()
        });
        assert!(collected, "zombies are left: {zombies:?}");
    }

    /// Fails the test when a process of this rig outlives an ended bridge.
    ///
    /// # Panics
    ///
    /// When one does.
    pub fn expect_nothing_left(&self) {
        self.expect_nothing_left_after(FAREWELL);
    }

    fn expect_nothing_left_after(&self, patience: Duration) {
        let mut left = Vec::new();
        let none = holds_within(patience, || {
            left = self.left();
            left.is_empty()
        });
        assert!(none, "processes are left: {left:?}\n{}", self.stderr());
    }

    /// Kills the bridge with -9; its children have to be gone a second later.
    ///
    /// # Panics
    ///
    /// When one is not.
    pub fn kill_9(mut self) {
        self.watcher.look();
        self.signal(Signal::KILL);
        self.wait_for_exit(STOP);
        self.expect_nothing_left_after(AFTERLIFE);
    }

    /// The living processes of this rig, the bridge itself not counted. A zombie that outlives the
    /// bridge is not counted either: it has ended, and to collect it is for the system's first
    /// process.
    fn left(&self) -> Vec<Process> {
        let mut left = processes::tagged(TAG, &self.tag);
        let seen = self.watcher.seen();
        left.extend(seen.iter().filter(|it| it.is_left()).filter_map(|it| processes::read(it.pid)));
        left.retain(|process| process.pid != self.pid() && !process.is_zombie());
        left.sort_by_key(|process| process.pid);
        left.dedup_by_key(|process| process.pid);
        left
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failed test shows what the bridge said")]
            {
                eprintln!("--- the bridge said ---\n{}-----------------------", self.stderr());
            }
        }
        self.watcher.look();
        // Errors mean that it is gone already, which is what we want.
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
        for process in self.left() {
            let _ = send_signal(process.pid, Signal::KILL);
        }
    }
}

/// A configuration with these servers, whose processes carry the tag.
fn configuration(servers: &[Server], tag: &str) -> String {
    let entry = |server: &Server| (server.name.clone(), server.entry(tag));
    let entries: Map<String, Value> = servers.iter().map(entry).collect();
    json!({"mcpServers": entries}).to_string()
}

/// A command that runs the bridge in `directory`, with an environment of our choice.
pub fn bridge_command(pontoon: &Path, directory: &Path) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kit starts what it tests, and accounts for it"
    )]
    let mut command = Command::new(pontoon);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).env("HOME", directory).env("RUST_BACKTRACE", "1");
    command.env("MCPO_STATE_DIR", directory.join("state")).current_dir(directory);
    command.env("MCPO_JOBS_DIR", directory.join("jobs")).env("MCPO_STATEFUL_CLEANUP_INTERVAL", "1");
    command
}

/// Sends a signal to any process.
///
/// # Errors
///
/// When it is gone.
pub fn send_signal(pid: u32, signal: Signal) -> std::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| std::io::Error::other("not a process id"))?;
    Ok(kill_process(pid, signal)?)
}

fn new_tag() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{}-{}-{since}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Keeps reading, so that the bridge never waits for us.
fn collect(
    from: impl std::io::Read + Send + 'static,
    into: &[&Arc<Mutex<String>>],
) -> thread::JoinHandle<()> {
    let into: Vec<_> = into.iter().map(|text| Arc::clone(text)).collect();
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            for text in &into {
                let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&line);
                text.push('\n');
            }
        }
    })
}

fn wait_for_address(
    bridge: &mut Child,
    printed: &Mutex<String>,
    readers: &[thread::JoinHandle<()>; 2],
) -> SocketAddr {
    let mut address = None;
    let said = || printed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let listens = holds_within(START, || {
        address = said().lines().find_map(listening_address);
        address.is_some() || matches!(bridge.try_wait(), Ok(Some(_)))
    });
    if let (true, Some(address)) = (listens, address) {
        return address;
    }
    let _ = bridge.kill();
    let status = bridge.wait();
    // Its last words may still be on their way.
    holds_within(SETTLE, || readers.iter().all(thread::JoinHandle::is_finished));
    panic!("the bridge does not listen ({status:?}); it said:\n{}", said());
}

fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on http")?;
    let (_, rest) = rest.split_once("://")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != ':');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests;

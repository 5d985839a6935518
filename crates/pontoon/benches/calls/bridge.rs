//! A bridge that runs: the real binary, on a port of its own, with one server.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Http, HttpCaller};
use crate::process::{self, Running};
use crate::server::Server;

/// The name of the only server.
const SERVER: &str = "bench";

/// What is logged.
#[derive(Debug, Clone, Copy)]
enum LogKept {
    /// What is told as it comes.
    Warnings,
    /// Every call, into a file.
    Calls,
}

/// A bridge that runs, and is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Bridge {
    running: Running,
    address: SocketAddr,
    _directory: TempDir,
}

impl Bridge {
    /// Starts the build `pontoon` in front of `server`, and waits until that is known.
    pub(crate) fn start(pontoon: &Path, mode: &str, server: &Server) -> Self {
        Self::start_with(pontoon, mode, server, |_| ())
    }

    /// The same that looks at no message and no tool for what may be wrong with it.
    pub(crate) fn without_healing(pontoon: &Path, mode: &str, server: &Server) -> Self {
        Self::start_with(pontoon, mode, server, |entry| {
            entry["heal"] = "off".into();
            entry["profile"] = "none".into();
        })
    }

    fn start_with(
        pontoon: &Path,
        mode: &str,
        server: &Server,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let entry = Self::entry(mode, server, change);
        Self::begin(pontoon, mode, &entry, LogKept::Warnings)
    }

    /// The same that logs a line for each call, into a file.
    pub(crate) fn with_call_lines(pontoon: &Path, mode: &str, server: &Server) -> Self {
        let entry = Self::entry(mode, server, |_| ());
        Self::begin(pontoon, mode, &entry, LogKept::Calls)
    }

    fn entry(mode: &str, server: &Server, change: impl FnOnce(&mut Value)) -> Value {
        let mut entry = json!({ "command": server.program, "args": server.args, "mode": mode });
        if mode == "stateful" {
            // All clients come from one address, which may have 32 conversations unless this is said.
            entry["max_processes_per_client"] = 64.into();
        }
        if mode == "shared" {
            // They come from one address, which has no more than its share.
            entry["max_in_flight"] = 256.into();
        }
        change(&mut entry);
        entry
    }

    fn begin(pontoon: &Path, mode: &str, entry: &Value, log: LogKept) -> Self {
        let bridge = Self::serve(pontoon, entry, log);
        // The one that all share is started with the bridge, and stays.
        if mode != "shared" {
            bridge.wait_for_no_child();
        }
        bridge
    }

    /// The same with a process for each request, and this many of them ready.
    pub(crate) fn warm(pontoon: &Path, spares: usize, server: &Server) -> Self {
        let entry = json!({ "command": server.program, "args": server.args, "warm": spares });
        let bridge = Self::serve(pontoon, &entry, LogKept::Warnings);
        bridge.wait_for_spares(spares);
        bridge
    }

    /// A client with a session, that makes this call.
    pub(crate) fn client(&self, call: &str) -> HttpCaller {
        HttpCaller::new(Http::open(self.address, &self.path()), &self.path(), call)
    }

    /// Waits until this many processes are ready.
    pub(crate) fn wait_for_spares(&self, spares: usize) {
        self.wait_for("its spares", |health| health["spares"] == spares);
    }

    fn serve(pontoon: &Path, server: &Value, log: LogKept) -> Self {
        let directory = process::directory();
        let config = directory.path().join("mcp-servers.json");
        let text = json!({ "mcpServers": { SERVER: server } }).to_string();
        std::fs::write(&config, text).expect("a file in our own directory");
        let mut command = process::command(pontoon, &["serve", "--listen", "127.0.0.1:0"]);
        command.arg("--config").arg(&config);
        match log {
            LogKept::Warnings => command.arg("--log-level=warn"),
            LogKept::Calls => {
                let file = File::create(directory.path().join("log")).expect("a file of ours");
                command.arg("--log-level=info").stdout(file)
            }
        };
        command.env("MCPO_STATE_DIR", directory.path()).env("MCPO_MAX_CONCURRENT", "32");
        command.env("MCPO_JOBS_DIR", directory.path().join("jobs"));
        let mut running = Running::start(command.stdin(Stdio::null()).stderr(Stdio::piped()));
        let stderr = running.0.stderr.take().expect("piped just above");
        let address = address_in(BufReader::new(stderr));
        if let Some(stdout) = running.0.stdout.take() {
            tell_all(BufReader::new(stdout));
        }
        let bridge = Self { running, address, _directory: directory };
        bridge.wait_for("its server", |health| health["servers"][SERVER]["state"] == "ready");
        bridge
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its server is.
    pub(crate) fn path(&self) -> String {
        format!("/mcp/{SERVER}")
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    /// The helper process that starts the servers.
    pub(crate) fn spawner(&self) -> u32 {
        process::below(self.id()).first().copied().expect("the bridge has a helper")
    }

    /// The servers that run now.
    pub(crate) fn servers(&self) -> Vec<u32> {
        process::below(self.spawner())
    }

    /// Waits until no server runs.
    pub(crate) fn wait_for_no_child(&self) {
        self.wait_for("no child", |health| health["children"] == 0);
    }

    /// A number of `/metrics`, by its name and labels as they stand there.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = Http::connect(self.address).get("/metrics");
        let page = String::from_utf8_lossy(&page);
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.expect("it is on the page").parse().expect("a number")
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let health = Http::connect(self.address).get("/health");
            let health: Value = serde_json::from_slice(&health).expect("JSON of our own");
            if holds(&health) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "waited for {what}: {health}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The address in the greeting. What comes after it is read away.
fn address_in(mut stderr: impl BufRead + Send + 'static) -> SocketAddr {
    let mut said = String::new();
    let address = loop {
        let before = said.len();
        let read = stderr.read_line(&mut said).expect("text");
        assert!(read > 0, "the bridge did not start: {said}");
        if let Some((_, address)) = said[before..].trim().split_once("listening on http://") {
            break address.parse().expect("an address");
        }
    };
    thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    address
}

/// Tells what is logged: at this level it matters.
fn tell_all(stdout: impl BufRead + Send + 'static) {
    thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            tell(&line);
        }
    });
}

#[expect(clippy::print_stderr, reason = "a benchmark talks to a person")]
fn tell(line: &str) {
    eprintln!("bridge: {line}");
}

//! MCP servers: processes of ours, or the starter itself through the control protocol.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::output::VERSION;
use crate::{Cli, LOOK};

/// How long a server may take to end by a signal.
const END: Duration = Duration::from_millis(500);

/// One server of the configuration.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    kind: Kind,
    tools: Mutex<Option<Vec<String>>>,
    next_id: AtomicU64,
}

#[derive(Debug)]
enum Kind {
    /// A process, started anew by the next call after it has died.
    Stdio { command: String, config: Value, starting: Mutex<()>, link: Mutex<Option<Link>> },
    /// The starter.
    Sdk,
}

/// A process that runs.
#[derive(Debug)]
struct Link {
    child: Child,
    input: ChildStdin,
    open: Open,
}

/// The requests without an answer; `None` once the process has closed its output.
type Open = Arc<Mutex<Option<HashMap<u64, SyncSender<Value>>>>>;

impl Server {
    /// `None` for what the real command drops without a word.
    pub(crate) fn new(name: &str, config: &Value) -> Option<Self> {
        let kind = match config["type"].as_str().unwrap_or("stdio") {
            "stdio" => Kind::Stdio {
                command: config["command"].as_str()?.to_owned(),
                config: config.clone(),
                starting: Mutex::new(()),
                link: Mutex::new(None),
            },
            "sdk" => Kind::Sdk,
            _ => return None,
        };
        let (tools, next_id) = (Mutex::new(None), AtomicU64::new(0));
        Some(Self { name: name.to_owned(), kind, tools, next_id })
    }

    /// Shakes hands and lists the tools, once.
    pub(crate) fn connect(&self, cli: &Arc<Cli>) {
        if self.tools.lock().is_ok_and(|tools| tools.is_some()) {
            return;
        }
        if matches!(self.kind, Kind::Sdk) && self.shake_hands(cli).is_err() {
            return;
        }
        let _ = self.list(cli);
    }

    /// What `system/init` says of it.
    pub(crate) fn status(&self) -> Value {
        let is_known = self.tools.lock().is_ok_and(|tools| tools.is_some());
        let source = if matches!(self.kind, Kind::Sdk) { "sdk" } else { "dynamic" };
        let status = if is_known { "connected" } else { "failed" };
        json!({"name": self.name, "status": status, "source": source})
    }

    /// Its tools as the model would see them.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let names = tools.iter().flatten();
        names.map(|tool| format!("mcp__{}__{tool}", self.name)).collect()
    }

    /// Asks for the tools.
    pub(crate) fn list(&self, cli: &Arc<Cli>) -> Result<(), String> {
        let list = self.request(cli, "tools/list", None, Some(start_limit()))?;
        let tools = list["tools"].as_array().into_iter().flatten();
        let names = tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some(names);
        Ok(())
    }

    /// Calls a tool by its own name.
    pub(crate) fn call(
        &self,
        cli: &Arc<Cli>,
        tool: &str,
        input: &Value,
        use_id: &str,
    ) -> Result<Value, String> {
        let meta = json!({"claudecode/toolUseId": use_id, "progressToken": use_id});
        let params = json!({"name": tool, "arguments": input, "_meta": meta});
        self.request(cli, "tools/call", Some(params), None)
    }

    /// It has sent a notification.
    pub(crate) fn notified(self: &Arc<Self>, cli: &Arc<Cli>, method: &str) {
        if method == "notifications/tools/list_changed" {
            let (server, cli) = (Arc::clone(self), Arc::clone(cli));
            thread::spawn(move || server.list(&cli));
        }
    }

    fn shake_hands(&self, cli: &Arc<Cli>) -> Result<(), String> {
        let about_us = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "claude-code", "version": VERSION}});
        self.request(cli, "initialize", Some(about_us), Some(start_limit()))?;
        self.notify(cli, "notifications/initialized", None);
        Ok(())
    }

    fn request(
        &self,
        cli: &Arc<Cli>,
        method: &str,
        params: Option<Value>,
        limit: Option<Duration>,
    ) -> Result<Value, String> {
        if method != "initialize" {
            self.start_process(cli)?;
        }
        let id = self.next_id.fetch_add(1, Ordering::SeqCst);
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        let mut answer = match &self.kind {
            Kind::Sdk => {
                let question = self.question(&message);
                let answer = self.wait(cli, id, &cli.send_question(&question), limit);
                answer.and_then(|answer| answer).map(|mut it| it["mcp_response"].take())
            }
            Kind::Stdio { .. } => {
                let (answer, answers) = sync_channel(1);
                self.with_link(|link| link.send(&message, Some((id, answer))));
                self.wait(cli, id, &answers, limit)
            }
        }?;
        match answer["error"]["message"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Waits for an answer. A prompt that is interrupted cancels its calls.
    fn wait<T>(
        &self,
        cli: &Arc<Cli>,
        id: u64,
        answers: &Receiver<T>,
        limit: Option<Duration>,
    ) -> Result<T, String> {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            match answers.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(String::from("Connection closed"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cli.is_interrupted() {
                let reason = json!({"requestId": id, "reason": "AbortError: remote-cancel"});
                self.notify(cli, "notifications/cancelled", Some(reason));
                return Err(String::from("interrupted"));
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Err(String::from("Request timed out"));
            }
        }
    }

    fn notify(&self, cli: &Arc<Cli>, method: &str, params: Option<Value>) {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        if let Some(params) = params {
            message["params"] = params;
        }
        match &self.kind {
            Kind::Sdk => {
                let acknowledged = cli.send_question(&self.question(&message));
                let _ = acknowledged.recv_timeout(END);
            }
            Kind::Stdio { .. } => self.with_link(|link| link.send(&message, None)),
        }
    }

    fn question(&self, message: &Value) -> Value {
        json!({"subtype": "mcp_message", "server_name": self.name, "message": message})
    }

    fn link(&self) -> Option<MutexGuard<'_, Option<Link>>> {
        match &self.kind {
            Kind::Stdio { link, .. } => Some(link.lock().unwrap_or_else(PoisonError::into_inner)),
            Kind::Sdk => None,
        }
    }

    fn with_link(&self, act: impl FnOnce(&mut Link)) {
        if let Some(link) = self.link().as_mut().and_then(|link| link.as_mut()) {
            act(link);
        }
    }

    /// Starts the process unless it runs, and shakes hands with it.
    fn start_process(&self, cli: &Arc<Cli>) -> Result<(), String> {
        let Kind::Stdio { command, config, starting, .. } = &self.kind else { return Ok(()) };
        // Another call waits until the hands are shaken.
        let _starting = starting.lock();
        let Some(mut link) = self.link() else { return Ok(()) };
        if link.as_ref().is_some_and(Link::is_open) {
            return Ok(());
        }
        if let Some(mut dead) = link.take() {
            dead.kill();
        }
        let (started, output) = Link::start(command, config).map_err(|error| error.to_string())?;
        let open = Arc::clone(&started.open);
        *link = Some(started);
        drop(link);
        let server = cli.servers().into_iter().find(|server| server.name == self.name);
        let heard = Arc::clone(cli);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let server = server.as_ref().filter(|_| message["method"].is_string());
                match (server, message["method"].as_str()) {
                    (Some(server), Some(method)) => server.notified(&heard, method),
                    _ => answered(&open, message),
                }
            }
            *open.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        self.shake_hands(cli)
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        self.with_link(Link::kill);
    }

    /// Ends the process, first gently.
    pub(crate) fn stop(&self) {
        self.with_link(|link| {
            let pid = i32::try_from(link.child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::INT));
            let end = Instant::now() + END;
            while matches!(link.child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(LOOK);
            }
            link.kill();
        });
    }
}

/// How long a server may take until its tools are known, as the real command has it.
fn start_limit() -> Duration {
    let millis = std::env::var("MCP_TIMEOUT").ok().and_then(|millis| millis.parse().ok());
    Duration::from_millis(millis.unwrap_or(30_000))
}

/// An answer has come.
fn answered(open: &Open, message: Value) {
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    let id = message["id"].as_u64();
    let answer = id.and_then(|id| open.as_mut().and_then(|open| open.remove(&id)));
    let _ = answer.map(|answer| answer.send(message));
}

impl Link {
    fn start(command: &str, config: &Value) -> std::io::Result<(Self, std::process::ChildStdout)> {
        #[expect(clippy::disallowed_methods, reason = "it ends with us, as the real command's do")]
        let mut command = Command::new(command);
        let arguments = config["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        command.args(arguments).env("CLAUDECODE", "1");
        for (name, value) in config["env"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().unwrap_or_default());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let open = Arc::new(Mutex::new(Some(HashMap::new())));
        Ok((Self { child, input, open }, output))
    }

    fn is_open(&self) -> bool {
        self.open.lock().is_ok_and(|open| open.is_some())
    }

    /// Sends a message; an answer that cannot come is dropped, which its asker notices.
    fn send(&mut self, message: &Value, answer: Option<(u64, SyncSender<Value>)>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(open), Some((id, answer))) = (open.as_mut(), answer) {
            open.insert(id, answer);
        }
        drop(open);
        let _ = self.input.write_all(format!("{message}\n").as_bytes());
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The end of its output is read later, and the next call must not go to it.
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

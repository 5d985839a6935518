//! A client of an MCP server on standard input and output: lines in, lines out.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::wait_until;

/// How long an answer may take before the test fails.
const SOON: Duration = Duration::from_secs(60);

/// A server that runs, and its client.
#[derive(Debug)]
pub struct StdioServer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// What came while something else was waited for.
    early: VecDeque<Value>,
}

impl StdioServer {
    /// Starts the program.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                let line =
                    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, lines, early: VecDeque::new() }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line as it is.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(format!("{line}\n").as_bytes()).expect("the server reads");
    }

    /// Sends a request.
    pub fn send(&mut self, id: impl Into<Value>, method: &str, params: &Value) {
        let id: Value = id.into();
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send_line(&message.to_string());
    }

    /// Sends a call of a tool.
    pub fn send_call(&mut self, id: impl Into<Value>, tool: &str, arguments: impl Into<Value>) {
        let arguments: Value = arguments.into();
        self.send(id, "tools/call", &json!({"name": tool, "arguments": arguments}));
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// The next message that fits, others wait.
    ///
    /// # Panics
    ///
    /// When none comes.
    pub fn wait_for(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.early.iter().position(&fits) {
            return self.early.remove(place).expect("found just now");
        }
        loop {
            let message = self.lines.recv_timeout(SOON);
            let message =
                message.unwrap_or_else(|error| panic!("{what}: {error}; early: {:?}", self.early));
            if fits(&message) {
                return message;
            }
            self.early.push_back(message);
        }
    }

    /// The answer to the request with this id.
    pub fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id: Value = id.into();
        self.wait_for(&format!("the answer to {id}"), |message| message["id"] == id)
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, id: impl Into<Value>, method: &str, params: &Value) -> Value {
        let id: Value = id.into();
        self.send(id.clone(), method, params);
        self.answer(id)
    }

    /// Calls a tool and gives its result.
    pub fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: impl Into<Value>) -> Value {
        let id: Value = id.into();
        self.send_call(id.clone(), tool, arguments);
        self.answer(id)["result"].take()
    }

    /// Opens the conversation as a legacy client.
    pub fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let answer = self.ask("open", "initialize", &params);
        self.notify("notifications/initialized", &json!({}));
        answer
    }

    /// What came and was not waited for.
    pub fn unheard(&mut self) -> Vec<Value> {
        self.early.extend(self.lines.try_iter());
        self.early.iter().cloned().collect()
    }

    /// Closes the input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the input and waits for the end.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn finish(mut self) -> ExitStatus {
        self.close_input();
        self.wait()
    }

    /// Kills it.
    ///
    /// # Panics
    ///
    /// When that cannot be done.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.wait();
    }

    /// Waits for the end, with the input open.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server ends", SOON, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("waited for")
    }
}

impl Drop for StdioServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

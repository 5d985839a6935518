//! Speaks as the Claude Code command does, toward the program that started it and toward MCP servers, but
//! plays a script instead of asking a model. It is for tests that must be fast, certain, or go wrong.
//!
//! It is started as the real one: `--input-format stream-json --output-format stream-json --verbose` and
//! more. It heeds `--mcp-config` (files or JSON, `stdio` and `sdk` servers), `--strict-mcp-config`,
//! `--allowedTools`, `--disallowedTools`, `--tools`, `--permission-prompt-tool stdio`, `--permission-mode
//! bypassPermissions`, `--include-partial-messages`, `--resume`, `--session-id`, `--model` and `--version`, and
//! takes any other option. Each user message is answered by `system/init`, what the script says, and one
//! `result`; with the end of its input it ends, with 1 if the last result was an error.
//!
//! The script is the user message if that is a JSON array, or else the file that `STAND_IN_SCRIPT` names. With
//! neither, the answer is `heard N bytes`. It is a list of steps, one member each:
//!
//! | step | what it does |
//! |---|---|
//! | `{"text": "..."}` | an assistant message, which is also the text of the result; see below |
//! | `{"large": 100000}` | the same with that many letters |
//! | `{"delta": "..."}` | a `stream_event` with a piece of text, if these were asked for |
//! | `{"call": [{"tool": "mcp__x__add", "input": {}}, ...]}` | calls tools at the same time, and tells their results |
//! | `{"list": true}` | lists the tools of all servers again, as it does by itself on `list_changed` |
//! | `{"wait_for_tool": "mcp__x__add"}` | waits until it has that tool, or it is interrupted |
//! | `{"ask": {"tool_name": "Bash", "input": {}}}` | asks for a permission; the answer becomes a text |
//! | `{"init": {...}}` | writes `system/init` here instead of first, with these members; `null` writes none |
//! | `{"result": {...}}` | writes a `result` with these members, where `null` takes one out |
//! | `{"raw": {...}}`, `{"garbage": "..."}` | writes a message, or a line, as it is |
//! | `{"stderr": "..."}` | writes a line to stderr |
//! | `{"exit": 3}` | ends at once |
//! | `{"hang": true}` | does nothing until it is interrupted |
//! | `{"deaf": true}` | from here on hears neither its input nor the end of it |
//! | `{"ignore_sigterm": true}` | from here on does not end by SIGTERM or SIGINT |
//! | `{"spawn": "sleep 1000", "pid": "FILE"}` | starts a process that would be left; `"keeps_output": true` with our output |
//! | `{"kill_server": "x"}` | kills the process of a server, as if it had crashed |
//! | `{"touch": "FILE"}` | makes a file |
//! | `{"wait_for": "FILE"}` | waits until there is one, or it is interrupted |
//!
//! In a text, `{{result}}` is the text of the last result of the last calls and `{{result:N}}` of the N-th,
//! counted from 0, `{{tools}}` the tools, `{{session}}` the session, `{{prompts}}` how many prompts came so far.
//!
//! `STAND_IN_RECORD` names a file to which a line of JSON is added for the start (`arguments`, `environment`,
//! `directory`, `pid`), one for each message that comes in (`heard`, `pid`) and one for a signal that it
//! heeds (`signal`, `pid`). `STAND_IN_FAIL` is a text with
//! which it ends as soon as it starts, with 1.

mod control;
mod options;
mod output;
mod permission;
mod play;
mod server;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

use control::Control;
use options::Options;
use output::Output;
use server::Server;

/// How often a thread that waits for something looks whether it still should.
const LOOK: Duration = Duration::from_millis(5);

/// All that the threads share.
#[derive(Debug)]
struct Cli {
    options: Options,
    output: Output,
    control: Control,
    servers: Mutex<Vec<Arc<Server>>>,
    session_id: String,
    prompts: AtomicUsize,
    /// The prompt that runs is to be given up.
    is_interrupted: AtomicBool,
    /// Nothing that comes in is heard any more.
    is_deaf: AtomicBool,
    ignores_sigterm: AtomicBool,
}

fn main() -> ExitCode {
    if let Some(text) = std::env::var_os("STAND_IN_FAIL") {
        return fail(&text.to_string_lossy());
    }
    let options = Options::from_arguments(std::env::args().skip(1));
    if options.version {
        let _ = writeln!(std::io::stdout(), "{} (Claude Code)", output::VERSION);
        return ExitCode::SUCCESS;
    }
    output::record(&json!({
        "arguments": std::env::args().collect::<Vec<_>>(),
        "environment": std::env::vars().collect::<BTreeMap<_, _>>(),
        "directory": std::env::current_dir().ok(),
    }));
    let configurations = match options.servers() {
        Ok(servers) => servers,
        Err(error) => return fail(&format!("Error: Invalid MCP configuration: {error}")),
    };
    let session_id = options.session_id.clone().unwrap_or_else(output::fresh_id);
    let servers = configurations.into_iter().filter_map(|(name, it)| Server::new(&name, &it));
    let cli = Arc::new(Cli {
        servers: Mutex::new(servers.map(Arc::new).collect()),
        options,
        output: Output::default(),
        control: Control::default(),
        session_id,
        prompts: AtomicUsize::new(0),
        is_interrupted: AtomicBool::new(false),
        is_deaf: AtomicBool::new(false),
        ignores_sigterm: AtomicBool::new(false),
    });
    heed_signals(&cli);
    let (prompts, next) = sync_channel::<String>(64);
    let runner = thread::spawn({
        let cli = Arc::clone(&cli);
        move || next.into_iter().fold(false, |_, prompt| play::prompt(&cli, &prompt))
    });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if !cli.is_deaf.load(Ordering::SeqCst) {
            cli.hear(&line, &prompts);
        }
    }
    cli.control.close();
    drop(prompts);
    let failed = runner.join().unwrap_or(true);
    while cli.is_deaf.load(Ordering::SeqCst) {
        thread::park();
    }
    cli.servers().iter().for_each(|server| server.stop());
    ExitCode::from(u8::from(failed))
}

impl Cli {
    /// Handles one line of the program that started us.
    fn hear(self: &Arc<Self>, line: &str, prompts: &SyncSender<String>) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            output::complain(&format!("not JSON: {line}"));
            std::process::exit(1);
        };
        output::record(&json!({"heard": message}));
        match message["type"].as_str() {
            Some("user") => {
                self.prompts.fetch_add(1, Ordering::SeqCst);
                let _ = prompts.send(text_of(&message["message"]["content"]));
            }
            Some("control_response") => self.control.answered(&message["response"]),
            Some("control_request") => self.requested(&message),
            _ => {}
        }
    }

    fn requested(self: &Arc<Self>, message: &Value) {
        let request = &message["request"];
        let answer = match request["subtype"].as_str() {
            Some("initialize") => {
                let named = request["sdkMcpServers"].as_array().into_iter().flatten();
                for name in named.filter_map(Value::as_str) {
                    let server = Server::new(name, &json!({"type": "sdk"}));
                    self.lock_servers().extend(server.map(Arc::new));
                }
                json!({"commands": [], "models": [], "claude_code_version": output::VERSION,
                    "pid": std::process::id()})
            }
            Some("interrupt") => {
                self.is_interrupted.store(true, Ordering::SeqCst);
                json!({"still_queued": []})
            }
            Some("mcp_message") => {
                let name = request["server_name"].as_str().unwrap_or_default();
                let server = self.servers().into_iter().find(|server| server.name == name);
                let method = request["message"]["method"].as_str();
                if let (Some(server), Some(method)) = (server, method) {
                    server.notified(self, method);
                }
                json!({"mcp_response": {"jsonrpc": "2.0", "result": {}, "id": 0}})
            }
            _ => json!({}),
        };
        self.output.write(&json!({"type": "control_response", "response": {
            "subtype": "success", "request_id": message["request_id"], "response": answer}}));
    }

    fn lock_servers(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        self.lock_servers().clone()
    }

    /// The names of the tools that the model would see.
    fn tools(&self) -> Vec<String> {
        let built_in = if self.options.has_tools { &[][..] } else { &["Bash", "Read", "Write"] };
        let built_in = built_in.iter().map(|&name| name.to_owned());
        let theirs = self.servers().into_iter().flat_map(|server| server.tool_names());
        built_in.chain(theirs).filter(|name| !self.options.disallows(name)).collect()
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::SeqCst)
    }
}

/// The text of a user message.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        blocks => {
            let blocks = blocks.as_array().into_iter().flatten();
            blocks.filter_map(|block| block["text"].as_str()).collect()
        }
    }
}

/// A thread ends us by SIGTERM as the real command does, unless the script has said otherwise. Blocked
/// signals wait for that thread; processes that we start have none blocked.
fn heed_signals(cli: &Arc<Cli>) {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    if signals.thread_block().is_err() {
        return;
    }
    let cli = Arc::clone(cli);
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if cli.ignores_sigterm.load(Ordering::SeqCst) {
                continue;
            }
            output::record(&json!({"signal": signal.as_str()}));
            if signal == Signal::SIGTERM {
                std::process::exit(143);
            }
            cli.is_interrupted.store(true, Ordering::SeqCst);
        }
    });
}

fn fail(text: &str) -> ExitCode {
    output::complain(text);
    ExitCode::FAILURE
}

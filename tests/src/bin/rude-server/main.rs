//! The rude server: an MCP server over stdio that misbehaves as it is told, and only so.
//!
//! `rude-server --how NAME [--how NAME …] [--when start|call] [--ms N] [--bytes N] [--pids FILE]`
//!
//! Otherwise it is a small correct server of the legacy era, with the tools `echo {text}` and
//! `wait {ms}`. The table below says each behaviour. What concerns answers spoils those to
//! `tools/call`; with `--when start` the handshake's and the list's too, and what floods or
//! hangs then does so from the first byte on.
//!
//! This file has the table and the correct server; `answers` spoils what is said, `framing` how
//! it is written, and `process` is rude as a process. `play` says in a call what a test wrote,
//! `attempts` tries to break out, and `tasks` is the one corner of the modern era.

mod answers;
mod attempts;
mod framing;
mod play;
mod process;
mod tasks;

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// Makes the enum of behaviours and their names from one table.
macro_rules! behaviours {
    ($($(#[doc = $says:literal])+ $how:ident = $name:literal,)+) => {
        /// One way to misbehave.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        enum How { $($(#[doc = $says])+ $how,)+ }

        /// Every behaviour, with its name and what it does.
        const TABLE: &[(How, &str, &str)] = &[$((How::$how, $name, concat!($($says),+)),)+];
    };
}

behaviours! {
    // The process.
    /// Never answers a call; with `--when start` nothing at all. It reads on, and exits at the end.
    Hang = "hang",
    /// Stops reading and writing at its first call, or with `--when start` before it.
    Freeze = "freeze",
    /// Fills stdout without end and without a newline.
    FloodStdout = "flood-stdout",
    /// Fills stdout without end, with lines that are not JSON.
    FloodLines = "flood-lines",
    /// Fills stderr without end, and serves on.
    FloodStderr = "flood-stderr",
    /// Writes secrets to stderr at its start.
    StderrSecret = "stderr-secret",
    /// Answers a call with one correct line of `--bytes` (400 MB) of text.
    LongLine = "long-line",
    /// Starts a child in its group and one in a session of its own; their pids go to `--pids`.
    Fork = "fork",
    /// Says why on stderr and exits with 7 instead of answering `initialize`.
    DieInHandshake = "die-in-handshake",
    /// Writes half the answer to a call and exits with 9.
    DieMidLine = "die-mid-line",
    /// Exits with 0 after the answer to its first call.
    DieAfterOne = "die-after-one",
    /// Heeds neither the end of its input nor SIGTERM.
    Deaf = "deaf",
    /// Waits `--ms` before it reads anything.
    SlowStart = "slow-start",
    /// Waits `--ms` after the end of its input before it exits.
    SlowExit = "slow-exit",
    /// Writes `--bytes` (1 MiB) of log lines to stdout before it reads anything.
    WritesBeforeReads = "writes-before-reads",
    /// Exits with 3 at a method that it does not know.
    DieAtUnknown = "die-at-unknown",
    /// Exits with 1 if the first message is a notification, as rmcp's servers do.
    ExitOnNotificationFirst = "exit-on-notification-first",
    /// Closes its input before it answers `initialize`, and lives on.
    CloseStdin = "close-stdin",

    // The framing.
    /// Prints a banner first, and log text before every answer, once on the same line.
    Banner = "banner",
    /// Spreads every message over several lines.
    Pretty = "pretty",
    /// Puts a notification and the answer on one line.
    Joined = "joined",
    /// Exits with 0 after the answer to a call, which has no newline.
    Unended = "unended",
    /// Ends lines with CR LF.
    Crlf = "crlf",
    /// Ends lines with CR alone.
    Cr = "cr",
    /// Begins with a byte order mark.
    Bom = "bom",
    /// Puts NUL bytes between messages.
    Nul = "nul",
    /// Indents every line and puts empty lines between.
    Spaces = "spaces",
    /// Writes, and also understands, `Content-Length` frames instead of lines.
    ContentLength = "content-length",
    /// Reads nothing but `Content-Length` frames, and writes them.
    FramesOnly = "frames-only",
    /// Puts every answer in an array.
    Batch = "batch",
    /// Answers `echo` in Latin-1 with an ä before the text.
    NotUtf8 = "not-utf8",
    /// Answers `echo` with half of a surrogate pair before the text.
    HalfPair = "half-pair",
    /// Flushes stdout only when it exits, and serves on.
    Buffered = "buffered",

    // The answers.
    /// Answers a call under another id.
    WrongId = "wrong-id",
    /// Answers a call under its id as a string.
    StringId = "string-id",
    /// Answers a call under its id with `.0` after it.
    FloatId = "float-id",
    /// Answers each request a moment later, under the id of the newest, as one does that keeps it in one variable.
    OneId = "one-id",
    /// Answers calls a little later, under the id of the newest one.
    MixesCalls = "mixes-calls",
    /// Says of `echo` that one call more changes nothing, which is so.
    MayRepeat = "may-repeat",
    /// Waits `--ms` before it refuses a call of a tool that it does not have, and does nothing else meanwhile.
    SlowRefusal = "slow-refusal",
    /// Waits `--ms` before it answers a `tools/list` or `ping`, one after the other.
    OneByOne = "one-by-one",
    /// Sends an answer that nobody waits for before the one to a call.
    UnknownId = "unknown-id",
    /// Sends every answer to a call twice.
    Duplicate = "duplicate",
    /// Answers a cancelled call nevertheless.
    Late = "late",
    /// Answers every notification with an error whose id is null.
    AnswersNotifications = "answers-notifications",
    /// Answers a call with an error whose id is null.
    NullIdError = "null-id-error",
    /// Tells progress for an unknown token, backwards, and after the answer.
    BadProgress = "bad-progress",
    /// Leaves out `jsonrpc`.
    NoJsonrpc = "no-jsonrpc",
    /// Answers a call with a result and `error: null`.
    NullError = "null-error",
    /// Answers a call with a result and an error.
    BothResultAndError = "both-result-and-error",
    /// Answers a call with neither a result nor an error.
    NeitherResultNorError = "neither-result-nor-error",
    /// Answers a call with a string as its error.
    ErrorString = "error-string",
    /// Answers a call with an error whose code is a string.
    ErrorCodeString = "error-code-string",
    /// Answers a call with a JSON-RPC error where `isError` was meant.
    CallError = "call-error",
    /// Says null for every optional field.
    Nulls = "nulls",
    /// Answers a call with a bare string as its result.
    RawResult = "raw-result",
    /// Answers a call with content that is one block without a type.
    LooseContent = "loose-content",
    /// Promises structured content in the list and gives none.
    NoStructured = "no-structured",
    /// Promises structured content in the list, and gives the arguments' text read as JSON, whatever it is.
    UnfitStructured = "unfit-structured",
    /// Adds a member of its own to every message.
    ExtraMember = "extra-member",
    /// Says `id` twice in the answer to a call; the second is right.
    TwinKeys = "twin-keys",
    /// Nests the answer to a call 100 000 arrays deep.
    Deep = "deep",
    /// Declares no capability although the tools work.
    NoCapabilities = "no-capabilities",
    /// Declares prompts, resources and logging, and knows nothing of them.
    EmptyPromises = "empty-promises",
    /// Answers `tools/list`, which its capabilities promise, with an error.
    ListFails = "list-fails",
    /// Answers methods that it does not know with an empty result.
    TakesUnknown = "takes-unknown",
    /// Has no tools.
    NoTools = "no-tools",
    /// Knows `server/discover`, and nothing else of the modern era.
    HalfModern = "half-modern",
    /// Refuses every `initialize`, for it knows no such version.
    NoVersion = "no-version",
    /// Knows no `ping`.
    NoPing = "no-ping",
    /// Insists on the version 2024-11-05.
    OldVersion = "old-version",
    /// Refuses every version but 2025-03-26, which its error names.
    RefusesVersion = "refuses-version",
    /// Refuses a second `initialize`.
    DoubleInitializeError = "double-initialize-error",
    /// Refuses every `initialize`, as one that was initialised before it came.
    AlreadyInitialized = "already-initialized",
    /// Sends requests with the id 1 after the handshake and during a call; stderr has the answers.
    AsksUnasked = "asks-unasked",
    /// Asks for the roots once, when it is initialised; its tool `roots` gives what it was told.
    AsksRoots = "asks-roots",
    /// Asks for the roots once, in its first call, and answers that without waiting; `roots` as above.
    AsksRootsInCall = "asks-roots-in-call",
    /// Has tools with odd schemas: `properties: null`, `items: ["type","number"]`, and none at all.
    OddSchemas = "odd-schemas",
    /// Lists its tools, and two more, on three pages.
    Pages = "pages",
    /// Lists its tools on one page that names another with each cursor.
    EndlessPages = "endless-pages",
    /// Lists its tools on two pages, of which the second names itself.
    CircularPages = "circular-pages",
    /// Lists its tools on one page, and names a second that is empty.
    EmptyPage = "empty-page",
    /// Lists its tools in another order each time.
    Shuffles = "shuffles",
    /// Has a third tool, whose name has 55 letters.
    LongName = "long-name",
    /// Has a third tool, `play {steps}`, which says and does what a test wrote: see `play`.
    Plays = "plays",
    /// Has another tool, `attempt {acts}`, which tries what a server should not: see `attempts`.
    Attempts = "attempts",
    /// Speaks the modern era alone, and answers every call with a task whose id is 1.
    TaskOne = "task-one",
}

/// What the command line asked for, and what this process did so far.
struct Rude {
    hows: HashSet<How>,
    is_rude_from_start: bool,
    ms: u64,
    bytes: Option<usize>,
    pids: Option<String>,
    cancelled: Mutex<HashSet<String>>,
    heard: play::Heard,
    /// The roots it was told, as JSON.
    roots: Mutex<Option<String>>,
    has_asked: AtomicBool,
    /// How often its tools were listed.
    lists: AtomicUsize,
    /// The id of the newest request.
    newest: Mutex<Value>,
}

impl Rude {
    fn is(&self, how: How) -> bool {
        self.hows.contains(&how)
    }
}

fn main() -> ExitCode {
    let rude = match command_line(std::env::args().skip(1)) {
        Ok(Some(rude)) => Arc::new(rude),
        Ok(None) => return ExitCode::SUCCESS,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "rude-server: {reason}");
            return ExitCode::from(2);
        }
    };
    process::start(&rude);
    let mut stdin = io::stdin().lock();
    let mut has_request = false;
    let mut has_handshake = false;
    while let Some(message) = next_message(&rude, &mut stdin) {
        let method = message["method"].as_str().unwrap_or_default();
        let Some(id) = message.get("id") else {
            if !has_request && rude.is(How::ExitOnNotificationFirst) {
                return ExitCode::from(1);
            }
            notification(&rude, method, &message);
            continue;
        };
        has_request = true;
        match method {
            "" => {
                rude.heard.put(&message);
                if *id == json!("roots") {
                    let mut roots = rude.roots.lock().unwrap_or_else(PoisonError::into_inner);
                    *roots = Some(message["result"]["roots"].to_string());
                }
                process::complain(&format!("answered: {message}"));
            }
            _ if rude.is(How::TaskOne) => tasks::answer(&rude, id, method, &message["params"]),
            "initialize" => {
                initialize(&rude, id, &message, has_handshake);
                has_handshake = true;
            }
            "tools/call" => call(&rude, id, &message["params"]),
            _ if rude.is(How::Hang) => {}
            "tools/list" if is_modern(&message) => {
                answers::send(&rude, id, &error(-32600, "no handshake was made"));
            }
            "tools/list" if rude.is(How::ListFails) => {
                answers::send(&rude, id, &error(-32603, "the list failed"));
            }
            "tools/list" => answer(&rude, id, list(&rude, &message["params"])),
            "ping" if !rude.is(How::NoPing) => answer(&rude, id, json!({ "result": {} })),
            "server/discover" if rude.is(How::HalfModern) => {
                let result = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } });
                answers::send(&rude, id, &json!({ "result": result }));
            }
            _ if rude.is(How::DieAtUnknown) && has_handshake => return ExitCode::from(3),
            _ if rude.is(How::TakesUnknown) => {
                answers::send(&rude, id, &json!({ "result": {} }));
            }
            _ => answers::send(&rude, id, &error(-32601, "no such method")),
        }
    }
    process::end(&rude)
}

/// Whether a request has the form of the modern era.
fn is_modern(message: &Value) -> bool {
    !message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null()
}

/// Answers a small request, in its own time.
fn answer(rude: &Arc<Rude>, id: &Value, body: Value) {
    if rude.is(How::OneByOne) {
        std::thread::sleep(Duration::from_millis(rude.ms));
    }
    if !rude.is(How::OneId) {
        return answers::send(rude, id, &body);
    }
    answer_newest(rude, id, move |rude, newest| answers::send(rude, newest, &body));
}

/// Answers a little later, under the id that is the newest by then.
fn answer_newest(rude: &Arc<Rude>, id: &Value, send: impl FnOnce(&Rude, &Value) + Send + 'static) {
    *rude.newest.lock().unwrap_or_else(PoisonError::into_inner) = id.clone();
    let rude = Arc::clone(rude);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let newest = rude.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        send(&rude, &newest);
    });
}

/// The next message, or `None` at the end. What cannot be read as one is passed over.
fn next_message(rude: &Rude, stdin: &mut impl BufRead) -> Option<Value> {
    loop {
        let mut line = Vec::new();
        if !matches!(stdin.read_until(b'\n', &mut line), Ok(1..)) {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        if (rude.is(How::ContentLength) || rude.is(How::FramesOnly))
            && let Some(length) = text.trim().strip_prefix("Content-Length:")
        {
            let mut rest = vec![0; length.trim().parse().ok()?];
            stdin.read_until(b'\n', &mut line).ok()?;
            stdin.read_exact(&mut rest).ok()?;
            line = rest;
        } else if rude.is(How::FramesOnly) {
            continue;
        }
        if let Ok(message) = serde_json::from_slice(&line) {
            return Some(message);
        }
    }
}

fn error(code: i64, message: &str) -> Value {
    json!({ "error": { "code": code, "message": message } })
}

fn notification(rude: &Rude, method: &str, message: &Value) {
    if rude.is(How::AnswersNotifications) {
        let mut answer = error(-32601, "no such method");
        answer["id"] = Value::Null;
        framing::write(rude, &answer);
    }
    match method {
        "notifications/cancelled" => {
            let mut cancelled = rude.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
            cancelled.insert(message["params"]["requestId"].to_string());
        }
        "notifications/initialized" if rude.is(How::AsksUnasked) => answers::ask_unasked(rude),
        "notifications/initialized" if rude.is(How::AsksRoots) => answers::ask_roots(rude),
        _ => {}
    }
}

fn initialize(rude: &Rude, id: &Value, message: &Value, is_second: bool) {
    if rude.is(How::DieInHandshake) {
        process::complain("reading the configuration");
        process::complain("fatal: FIXTURE_TOKEN is not set");
        std::process::exit(7);
    }
    if rude.is(How::Hang) && rude.is_rude_from_start {
        return;
    }
    let asked = message["params"]["protocolVersion"].as_str();
    if rude.is(How::AlreadyInitialized) || (rude.is(How::DoubleInitializeError) && is_second) {
        return answers::send(rude, id, &error(-32600, "already initialized"));
    }
    if rude.is(How::NoVersion) {
        return answers::send(rude, id, &error(-32602, "unsupported protocol version"));
    }
    if rude.is(How::RefusesVersion) && asked != Some("2025-03-26") {
        let mut refusal = error(-32602, "Unsupported protocol version, supported: 2025-03-26");
        refusal["error"]["data"] = json!({ "supported": ["2025-03-26"], "requested": asked });
        return answers::send(rude, id, &refusal);
    }
    let known = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let mut version = asked.filter(|asked| known.contains(asked)).unwrap_or("2025-11-25");
    if rude.is(How::OldVersion) {
        version = "2024-11-05";
    }
    let mut result = json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "rude-server", "version": env!("CARGO_PKG_VERSION") },
    });
    if rude.is(How::NoCapabilities) {
        result["capabilities"] = json!({});
    }
    if rude.is(How::EmptyPromises) {
        result["capabilities"] =
            json!({ "tools": {}, "prompts": {}, "resources": {}, "logging": {} });
    }
    if rude.is(How::Nulls) {
        result["instructions"] = Value::Null;
        result["_meta"] = Value::Null;
        result["capabilities"]["prompts"] = Value::Null;
        result["serverInfo"]["title"] = Value::Null;
    }
    if rude.is(How::CloseStdin) {
        process::close_input(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
    answers::send(rude, id, &json!({ "result": result }));
}

fn list(rude: &Rude, params: &Value) -> Value {
    let tool = |name: &str, argument: &str, kind: &str| {
        let properties = json!({ argument: { "type": kind } });
        let schema = json!({ "type": "object", "properties": properties, "required": [argument] });
        json!({ "name": name, "description": "For tests.", "inputSchema": schema })
    };
    let mut tools = vec![tool("echo", "text", "string"), tool("wait", "ms", "integer")];
    if rude.is(How::MayRepeat) {
        tools[0]["annotations"] = json!({ "idempotentHint": true });
    }
    if rude.is(How::Plays) {
        tools.push(tool("play", "steps", "array"));
    }
    if rude.is(How::Attempts) {
        tools.push(tool("attempt", "acts", "array"));
    }
    if rude.is(How::LongName) {
        tools.push(tool(&"long_".repeat(11), "text", "string"));
    }
    if rude.is(How::NoTools) {
        tools.clear();
    }
    if rude.is(How::Shuffles) && rude.lists.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
        tools.reverse();
    }
    if rude.is(How::OddSchemas) {
        tools[1]["inputSchema"] = json!({ "properties": null });
        let items = json!({ "type": "array", "items": ["type", "number"] });
        tools.push(json!({ "name": "place", "inputSchema": { "type": "object", "properties": { "at": items } } }));
        tools.push(json!({ "name": "bare" }));
    }
    if rude.is(How::UnfitStructured) {
        let properties = json!({ "text": { "type": "string" }, "size": { "type": "integer" } });
        tools[0]["outputSchema"] =
            json!({ "type": "object", "properties": properties, "required": ["text"] });
    }
    if rude.is(How::NoStructured) {
        let properties = json!({ "text": { "type": "string" } });
        tools[0]["outputSchema"] =
            json!({ "type": "object", "properties": properties, "required": ["text"] });
    }
    if rude.is(How::Nulls) {
        tools[0]["annotations"] = Value::Null;
        tools[0]["title"] = Value::Null;
        tools[0]["outputSchema"] = Value::Null;
        return json!({ "result": { "tools": tools, "nextCursor": null, "_meta": null } });
    }
    let cursor = params["cursor"].as_str();
    if rude.is(How::EndlessPages) {
        let next = format!("{}x", cursor.unwrap_or_default());
        return json!({ "result": { "tools": tools, "nextCursor": next } });
    }
    if rude.is(How::CircularPages) {
        let at = usize::from(cursor == Some("b"));
        return json!({ "result": { "tools": [tools[at]], "nextCursor": "b" } });
    }
    if rude.is(How::EmptyPage) {
        let page = json!({ "tools": tools, "nextCursor": "b" });
        return json!({ "result": if cursor.is_none() { page } else { json!({ "tools": [] }) } });
    }
    if !rude.is(How::Pages) {
        return json!({ "result": { "tools": tools } });
    }
    let page = match cursor {
        None => json!({ "tools": tools, "nextCursor": "page 2" }),
        Some("page 2") => json!({ "tools": [tool("extra1", "text", "string")], "nextCursor": "3" }),
        Some("3") => json!({ "tools": [tool("extra2", "text", "string")] }),
        Some(_) => return error(-32602, "no such cursor"),
    };
    json!({ "result": page })
}

fn call(rude: &Arc<Rude>, id: &Value, params: &Value) {
    if process::is_rude_to_call(rude, id) {
        return;
    }
    let arguments = &params["arguments"];
    if rude.is(How::AsksRootsInCall) {
        answers::ask_roots(rude);
    }
    let roots = || rude.roots.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = match params["name"].as_str() {
        Some("roots") => &roots().unwrap_or_else(|| "untold".to_owned()),
        Some("wait") => {
            // So that a client can know that the call is here.
            let token = &params["_meta"]["progressToken"];
            if !token.is_null() {
                answers::progress(rude, token, 1);
            }
            return wait(rude, id, arguments["ms"].as_u64().unwrap_or_default());
        }
        Some("play") if rude.is(How::Plays) => return play::play(rude, id, &arguments["steps"]),
        Some("attempt") if rude.is(How::Attempts) => &attempts::attempt_all(&arguments["acts"]),
        Some("echo" | "extra1" | "extra2") => arguments["text"].as_str().unwrap_or_default(),
        _ => {
            if rude.is(How::SlowRefusal) {
                std::thread::sleep(Duration::from_millis(rude.ms));
            }
            return answers::send(rude, id, &error(-32602, "no such tool"));
        }
    };
    let token = &params["_meta"]["progressToken"];
    if rude.is(How::MixesCalls) {
        let (text, token) = (text.to_owned(), token.clone());
        let send =
            move |rude: &Rude, newest: &Value| answers::send_call(rude, newest, &text, &token);
        return answer_newest(rude, id, send);
    }
    answers::send_call(rude, id, text, token);
    process::after_answer(rude);
}

/// Waits beside the reading loop, which so sees a cancellation.
fn wait(rude: &Arc<Rude>, id: &Value, ms: u64) {
    let (rude, id) = (Arc::clone(rude), id.clone());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(ms));
        let cancelled = rude.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_cancelled = cancelled.contains(&id.to_string());
        drop(cancelled);
        if !is_cancelled || rude.is(How::Late) {
            answers::send_call(&rude, &id, &format!("waited {ms} ms"), &Value::Null);
            process::after_answer(&rude);
        }
    });
}

/// What the command line asks for, or `None` when it only asked for the table.
fn command_line(mut arguments: impl Iterator<Item = String>) -> Result<Option<Rude>, String> {
    let mut rude = Rude {
        hows: HashSet::new(),
        is_rude_from_start: false,
        ms: 1000,
        bytes: None,
        pids: None,
        cancelled: Mutex::default(),
        heard: play::Heard::default(),
        roots: Mutex::default(),
        has_asked: AtomicBool::new(false),
        lists: AtomicUsize::new(0),
        newest: Mutex::default(),
    };
    while let Some(option) = arguments.next() {
        if option == "--list" {
            for (_, name, says) in TABLE {
                let _ = writeln!(io::stdout(), "{name:28}{says}");
            }
            return Ok(None);
        }
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{option} {value} is no number"));
        match option.as_str() {
            "--how" => {
                let row = TABLE.iter().find(|(_, name, _)| *name == value);
                let (how, ..) = row.ok_or_else(|| format!("no behaviour `{value}`; see --list"))?;
                rude.hows.insert(*how);
            }
            "--when" => rude.is_rude_from_start = value == "start",
            "--ms" => rude.ms = number()?,
            "--bytes" => rude.bytes = Some(usize::try_from(number()?).unwrap_or(usize::MAX)),
            "--pids" => rude.pids = Some(value),
            _ => return Err(format!("unknown option {option}")),
        }
    }
    Ok(Some(rude))
}

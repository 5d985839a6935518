//! `pontoon demo`: a small MCP server on standard input and output, for a first try and for tests.
//!
//! It speaks both eras, several calls at a time, and ends when its input ends. It is plain
//! blocking code without a runtime, so that it starts in about a millisecond. This file holds the
//! conversation; what the tools do is in `tools`.

mod tools;

use std::collections::HashMap;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use tools::Outcome;

const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;
const MAX_OPEN_CALLS: usize = 64;
/// How long a person may think about a question.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long calls may still run when the input has ended. Whoever closed it waits about two
/// seconds before sending a signal.
const GRACE: Duration = Duration::from_secs(1);

const HINT: &str = "This is an MCP server: it reads JSON-RPC messages, one a line. Ctrl-D ends it.
Try:  {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\
\"params\":{\"name\":\"greet\",\"arguments\":{\"name\":\"Ada\"}}}
";

/// Serves standard input until it ends. Files go to `MCPO_WORKDIR`, or else where we were started.
pub fn run() -> ExitCode {
    let work_dir = std::env::var_os("MCPO_WORKDIR").map_or_else(|| ".".into(), PathBuf::from);
    if io::stdin().is_terminal() {
        // Who sees no hint has lost nothing.
        let _ = io::stderr().write_all(HINT.as_bytes());
    }
    let server = Server::new(Box::new(io::stdout()), work_dir);
    match read_lines(io::stdin().lock(), &server) {
        Ok(()) => {
            server.finish(GRACE);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "pontoon demo: cannot read the input: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read_lines(mut input: impl BufRead, server: &Arc<Server>) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            return Err(io::Error::other(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
        }
        server.handle(&line);
    }
}

/// The conversation: lines in by [`Server::handle`], lines out through `out`.
struct Server {
    out: Mutex<Box<dyn Write + Send>>,
    work_dir: PathBuf,
    /// What the client can do, as it said in `initialize`.
    legacy_capabilities: Mutex<Value>,
    open: Mutex<HashMap<String, Open>>,
    /// Told whenever an open request is done.
    closed: Condvar,
    /// Our own questions to a legacy client, by our id; `None` when nobody will answer any more.
    questions: Mutex<Option<HashMap<u64, Arc<Bell>>>>,
    last_question: AtomicU64,
}

/// A request that is not answered yet.
enum Open {
    Call(Arc<Bell>),
    Listen { id: Value },
}

/// How this request was made, and so how its answer has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// An error answer: code, message and data.
#[derive(Debug)]
struct Refusal(i32, String, Value);

impl Refusal {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self(code, message.into(), Value::Null)
    }
}

impl Server {
    fn new(out: Box<dyn Write + Send>, work_dir: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            out: Mutex::new(out),
            work_dir,
            legacy_capabilities: Mutex::new(Value::Null),
            open: Mutex::default(),
            closed: Condvar::new(),
            questions: Mutex::new(Some(HashMap::new())),
            last_question: AtomicU64::new(0),
        })
    }

    fn handle(self: &Arc<Self>, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return self.refuse(None, Refusal::new(-32600, "a message is one object")),
            Err(error) => {
                return self.refuse(None, Refusal::new(-32700, format!("not JSON: {error}")));
            }
        };
        let id = message.get("id").filter(|id| id.is_string() || id.is_number());
        match (message.get("method"), id) {
            (Some(Value::String(method)), Some(id)) => self.request(id, method, &message),
            (Some(Value::String(method)), None) if !message.contains_key("id") => {
                self.notification(method, &message);
            }
            (None, Some(id)) => self.take_answer(id, message.get("result")),
            // An error about a message of ours without an id; nothing to match it with.
            (None, None) if message.contains_key("error") => {}
            _ => self.refuse(id, Refusal::new(-32600, "neither a request nor an answer")),
        }
    }

    fn request(self: &Arc<Self>, id: &Value, method: &str, message: &Map<String, Value>) {
        let params = message.get("params").cloned().unwrap_or(Value::Null);
        let answer = match era(method, &params) {
            Err(refusal) => Err(refusal),
            Ok(era) => match (era, method) {
                (_, "tools/call") => return self.call(Call::new(self, id, params, era)),
                (Era::Modern, "subscriptions/listen") => return self.listen(id),
                _ => self.answer(era, method, &params).map(|result| dressed(result, era)),
            },
        };
        match answer {
            Ok(result) => self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Err(refusal) => self.refuse(Some(id), refusal),
        }
    }

    /// The answers that take no time.
    fn answer(&self, era: Era, method: &str, params: &Value) -> Result<Value, Refusal> {
        let result = match (era, method) {
            (Era::Legacy, "initialize") => {
                *lock(&self.legacy_capabilities) = params["capabilities"].clone();
                let asked = params["protocolVersion"].as_str();
                let version = LEGACY.iter().find(|known| asked == Some(known));
                return Ok(json!({
                    "protocolVersion": version.unwrap_or(&LEGACY[0]),
                    "capabilities": capabilities(),
                    "serverInfo": server_info(),
                    "instructions": tools::INSTRUCTIONS,
                }));
            }
            (Era::Legacy, "ping") => return Ok(json!({})),
            (Era::Modern, "server/discover") => json!({
                "supportedVersions": [MODERN],
                "capabilities": capabilities(),
                "instructions": tools::INSTRUCTIONS,
            }),
            (_, "tools/list") => json!({"tools": tools::list()}),
            (_, "prompts/list") => json!({"prompts": tools::prompts()}),
            (_, "prompts/get") => {
                let refusal = |text| Refusal::new(-32602, text);
                return tools::prompt(params).map_err(refusal);
            }
            (_, "resources/list") => json!({"resources": tools::resources()}),
            (_, "resources/templates/list") => json!({"resourceTemplates": []}),
            (_, "resources/read") => tools::resource(params).map_err(|text| {
                let code = if era == Era::Modern { -32602 } else { -32002 };
                Refusal(code, text, json!({"uri": params["uri"]}))
            })?,
            _ => return Err(Refusal::new(-32601, format!("there is no method `{method}`"))),
        };
        Ok(if era == Era::Modern { cacheable(result) } else { result })
    }

    /// Runs a tool: at once when it takes no time, else on a thread of its own.
    fn call(self: &Arc<Self>, call: Call) {
        if tools::is_quick(&call.params) {
            let outcome = tools::call(&call);
            return self.answer_call(&call, outcome);
        }
        let refusal = {
            let mut open = lock(&self.open);
            let key = call.id.to_string();
            if open.contains_key(&key) {
                Some(Refusal::new(-32600, format!("the id {key} is in use")))
            } else if open.len() >= MAX_OPEN_CALLS {
                let text = format!("{MAX_OPEN_CALLS} calls are running; wait for one to end");
                Some(Refusal::new(-32603, text))
            } else {
                open.insert(key, Open::Call(Arc::clone(&call.bell)));
                None
            }
        };
        if let Some(refusal) = refusal {
            return self.refuse(Some(&call.id), refusal);
        }
        let (id, server) = (call.id.clone(), Arc::clone(self));
        let work = move || {
            let outcome = tools::call(&call);
            server.close(&call.id, || server.answer_call(&call, outcome));
        };
        if let Err(error) = std::thread::Builder::new().name("tool".into()).spawn(work) {
            let refusal = Refusal::new(-32603, format!("no thread for this call: {error}"));
            self.close(&id, || self.refuse(Some(&id), refusal));
        }
    }

    fn answer_call(&self, call: &Call, outcome: Result<Outcome, Refusal>) {
        let result = match outcome {
            Ok(Outcome::Text(text)) => json!({"content": [{"type": "text", "text": text}]}),
            Ok(Outcome::Data(text, data)) => {
                json!({"content": [{"type": "text", "text": text}], "structuredContent": data})
            }
            Ok(Outcome::Wrong(text)) => {
                json!({"content": [{"type": "text", "text": text}], "isError": true})
            }
            Ok(Outcome::InputRequired(questions, state)) => json!({
                "resultType": "input_required",
                "inputRequests": questions,
                "requestState": state,
            }),
            Ok(Outcome::Stopped) => return,
            Err(refusal) => return self.refuse(Some(&call.id), refusal),
        };
        let result = dressed(result, call.era);
        self.send(&json!({"jsonrpc": "2.0", "id": call.id, "result": result}));
    }

    /// Says the last word on a request, unless it was cancelled in the meantime.
    fn close(&self, id: &Value, last_word: impl FnOnce()) {
        let mut open = lock(&self.open);
        if open.remove(&id.to_string()).is_some() {
            // Said under the lock: who sees no open request knows that all answers are out.
            last_word();
        }
        self.closed.notify_all();
    }

    /// A subscription to nothing: our lists never change, but the client may wait all the same.
    fn listen(&self, id: &Value) {
        lock(&self.open).insert(id.to_string(), Open::Listen { id: id.clone() });
        self.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION_KEY: id}, "notifications": {}},
        }));
    }

    fn notification(&self, method: &str, message: &Map<String, Value>) {
        // Nothing else that a client may tell is of interest here, and none of it gets an answer.
        if method == "notifications/cancelled"
            && let Some(id) = message.get("params").and_then(|params| params.get("requestId"))
            && let Some(Open::Call(bell)) = lock(&self.open).remove(&id.to_string())
        {
            bell.ring(Ring::Stopped);
        }
    }

    /// The client's answer to a question of ours.
    fn take_answer(&self, id: &Value, result: Option<&Value>) {
        let bell = id.as_u64().and_then(|id| lock(&self.questions).as_mut()?.remove(&id));
        if let Some(bell) = bell {
            bell.ring(Ring::Answered(result.cloned().unwrap_or(Value::Null)));
        }
    }

    /// Ends the conversation: nobody will answer our questions, open calls get a little time.
    fn finish(&self, grace: Duration) {
        for bell in lock(&self.questions).take().into_iter().flat_map(HashMap::into_values) {
            bell.ring(Ring::Answered(json!({"action": "cancel"})));
        }
        let mut open = lock(&self.open);
        open.retain(|_, request| match request {
            Open::Call(_) => true,
            Open::Listen { id } => {
                let mut result = dressed(json!({}), Era::Modern);
                result["_meta"][SUBSCRIPTION_KEY] = id.clone();
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
                false
            }
        });
        let all_closed = self.closed.wait_timeout_while(open, grace, |open| !open.is_empty());
        drop(all_closed);
    }

    fn refuse(&self, id: Option<&Value>, Refusal(code, message, data): Refusal) {
        let mut error = json!({"code": code, "message": message});
        if !data.is_null() {
            error["data"] = data;
        }
        let mut answer = json!({"jsonrpc": "2.0", "error": error});
        if let Some(id) = id {
            answer["id"] = id.clone();
        }
        self.send(&answer);
    }

    fn send(&self, message: &Value) {
        let line = format!("{message}\n");
        let mut out = lock(&self.out);
        // A client that no longer reads will close our input too, and that ends us.
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// One `tools/call`, as a tool sees it.
struct Call {
    server: Arc<Server>,
    id: Value,
    params: Value,
    era: Era,
    bell: Arc<Bell>,
}

impl Call {
    fn new(server: &Arc<Server>, id: &Value, params: Value, era: Era) -> Self {
        Self { server: Arc::clone(server), id: id.clone(), params, era, bell: Arc::default() }
    }

    /// Tells how far it is, if the client wants to know.
    fn progress(&self, progress: u64, total: u64, message: &str) {
        let token = &self.params["_meta"]["progressToken"];
        if token.is_string() || token.is_number() {
            let params = json!({
                "progressToken": token,
                "progress": progress,
                "total": total,
                "message": message,
            });
            let method = "notifications/progress";
            self.server.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        }
    }

    /// Waits this long; `false` when the call was cancelled before.
    fn pause(&self, time: Duration) -> bool {
        !matches!(self.bell.wait(time), Some(Ring::Stopped))
    }

    fn can_ask(&self) -> bool {
        match self.era {
            Era::Legacy => lock(&self.server.legacy_capabilities).get("elicitation").is_some(),
            Era::Modern => self.params["_meta"][CAPABILITIES_KEY].get("elicitation").is_some(),
        }
    }

    /// Asks a legacy client in the middle of the call, and waits; `None` when it was cancelled.
    fn ask(&self, params: &Value) -> Option<Value> {
        let server = &self.server;
        let id = server.last_question.fetch_add(1, Ordering::Relaxed) + 1;
        match lock(&server.questions).as_mut() {
            Some(questions) => questions.insert(id, Arc::clone(&self.bell)),
            None => return Some(json!({"action": "cancel"})),
        };
        let method = "elicitation/create";
        server.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let ring = self.bell.wait(PATIENCE);
        if let Some(Ring::Answered(answer)) = ring {
            return Some(answer);
        }
        lock(&server.questions).as_mut().map(|questions| questions.remove(&id));
        let params = json!({"requestId": id, "reason": "no longer needed"});
        let method = "notifications/cancelled";
        server.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        ring.is_none().then(|| json!({"action": "cancel"}))
    }
}

/// Wakes a waiting call. It keeps what it was rung for until someone waits.
#[derive(Default)]
struct Bell {
    ring: Mutex<Option<Ring>>,
    rung: Condvar,
}

enum Ring {
    Stopped,
    Answered(Value),
}

impl Bell {
    fn ring(&self, ring: Ring) {
        *lock(&self.ring) = Some(ring);
        self.rung.notify_all();
    }

    /// What it was rung for within this time, or `None`.
    fn wait(&self, time: Duration) -> Option<Ring> {
        let until = Instant::now() + time;
        let mut ring = lock(&self.ring);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if ring.is_some() || left.is_zero() {
                return ring.take();
            }
            let waited = self.rung.wait_timeout(ring, left);
            ring = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Which era a request belongs to: its `_meta` decides, whatever was said before.
fn era(method: &str, params: &Value) -> Result<Era, Refusal> {
    let meta = &params["_meta"];
    match meta.get(VERSION_KEY) {
        None if method == "server/discover" || method == "subscriptions/listen" => {
            Err(Refusal::new(-32602, format!("`{method}` needs `_meta` with `{VERSION_KEY}`")))
        }
        None => Ok(Era::Legacy),
        Some(version) if version != MODERN => {
            let data = json!({"supported": [MODERN], "requested": version});
            Err(Refusal(-32022, "Unsupported protocol version".into(), data))
        }
        Some(_) if !meta[CAPABILITIES_KEY].is_object() => {
            Err(Refusal::new(-32602, format!("`_meta` needs an object `{CAPABILITIES_KEY}`")))
        }
        Some(_) => Ok(Era::Modern),
    }
}

/// The result with what every result of its era carries.
fn dressed(mut result: Value, era: Era) -> Value {
    if era == Era::Modern {
        if result.get("resultType").is_none() {
            result["resultType"] = "complete".into();
        }
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": server_info()});
    }
    result
}

/// Nothing here changes or is anybody's own, so everyone may keep it.
fn cacheable(mut result: Value) -> Value {
    result["ttlMs"] = 3_600_000.into();
    result["cacheScope"] = "public".into();
    result
}

fn capabilities() -> Value {
    json!({"tools": {}, "prompts": {}, "resources": {}})
}

fn server_info() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({"name": "pontoon-demo", "title": "Pontoon demo", "version": version})
}

/// No state here is left half-changed by a panic, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

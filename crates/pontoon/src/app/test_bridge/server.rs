//! A server of a test with a few tools, each of which does one thing that clients have to live with.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pontoon_wire::{Era, Message, Slot, json, method};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::request::request;
use crate::back::child::in_memory::{InMemoryServers, ServerEnd};
use crate::back::pair::result;
use crate::call::plain_notification;

/// What processes of a server were told, each with its number.
type Heard = Vec<(u32, String)>;

/// A server with these tools:
///
/// - `echo` answers with the number of its process,
/// - `wait` answers after `seconds`, and `note` tells of its progress first,
/// - `never` does not answer, and `fail` answers with an error,
/// - `log` writes a log line of each level,
/// - `ask` asks the client, and answers when it has,
/// - `change` changes the tools, and says so,
/// - `pick it0` answers with its arguments, unless the last is -1; neither its name nor its schema is what clients take,
/// - `end` ends the process.
#[derive(Clone)]
pub(crate) struct ToolServer {
    eras: Vec<Era>,
    /// It does not answer the first request of this era.
    mute: Option<Era>,
    /// It does not end with its input.
    is_deaf: bool,
    /// It asks for the roots of its client as soon as it is greeted.
    is_curious: bool,
    /// The tools that it names besides, which take any arguments.
    listed: &'static [&'static str],
    /// It begins with another one of them each time.
    is_restless: bool,
    heard: Arc<watch::Sender<Heard>>,
    state: Arc<Mutex<ToolServerState>>,
}

#[derive(Default)]
struct ToolServerState {
    /// Changes with each `change`.
    version: u32,
    /// How often its tools were listed.
    lists: usize,
    /// How many of the processes that start next end at once.
    broken_starts: usize,
    /// What the clients of each handshake can be asked.
    asked_with: Vec<String>,
    /// What the tool that tells of its arguments was last given.
    picked: String,
    /// How long a process takes until it says a word.
    start_time: Duration,
    starts: Vec<Instant>,
}

impl ToolServer {
    /// One that speaks this era.
    pub(crate) fn new(era: Era) -> Self {
        Self {
            eras: vec![era],
            mute: None,
            is_deaf: false,
            is_curious: false,
            listed: &[],
            is_restless: false,
            heard: Arc::default(),
            state: Arc::default(),
        }
    }

    /// One that speaks both.
    pub(crate) fn of_both_eras() -> Self {
        Self { eras: vec![Era::Legacy, Era::Modern], ..Self::new(Era::Legacy) }
    }

    /// The same, but it does not answer the first request of this era, as if it were slow.
    pub(crate) fn mute_in(self, era: Era) -> Self {
        Self { mute: Some(era), ..self }
    }

    /// The same, but it does not end with its input.
    pub(crate) fn deaf(self) -> Self {
        Self { is_deaf: true, ..self }
    }

    /// The same, but it asks for the roots of its client as soon as it is greeted.
    pub(crate) fn curious(self) -> Self {
        Self { is_curious: true, ..self }
    }

    /// The same, but these of its tools are in its list, too.
    pub(crate) fn listing(self, listed: &'static [&'static str]) -> Self {
        Self { listed, ..self }
    }

    /// The same, but it lists those in another order each time.
    pub(crate) fn restless(self) -> Self {
        Self { is_restless: true, ..self }
    }

    /// Its processes.
    pub(crate) fn servers(&self) -> InMemoryServers {
        let server = self.clone();
        InMemoryServers::new(move |end| server.clone().serve(end))
    }

    /// Makes the next `count` processes end as soon as they start, as a program does that cannot run.
    pub(crate) fn break_starts(&self, count: usize) {
        self.state.lock().unwrap().broken_starts = count;
    }

    /// From now on each process takes this long until it says a word.
    pub(crate) fn slow_starts(&self, start_time: Duration) {
        self.state.lock().unwrap().start_time = start_time;
    }

    /// When its processes were started.
    pub(crate) fn starts(&self) -> Vec<Instant> {
        self.state.lock().unwrap().starts.clone()
    }

    /// Waits until one of its processes has heard this, and gives which.
    pub(crate) async fn until_heard(&self, what: &str) -> u32 {
        let mut heard = self.heard.subscribe();
        let heard = heard.wait_for(|heard| heard.iter().any(|(_, it)| it == what)).await.unwrap();
        heard.iter().find(|(_, it)| it == what).unwrap().0
    }

    /// What the client of each handshake so far can be asked, as it said it.
    pub(crate) fn asked_with(&self) -> Vec<String> {
        self.state.lock().unwrap().asked_with.clone()
    }

    /// The arguments of the last call of `pick it`.
    pub(crate) fn picked(&self) -> String {
        self.state.lock().unwrap().picked.clone()
    }

    /// The calls and cancellations that its processes heard.
    pub(crate) fn work_heard(&self) -> Vec<(u32, String)> {
        let heard = self.heard.borrow();
        let is_work = |it: &str| it.starts_with(method::CALL_TOOL) || it == method::CANCELLED;
        heard.iter().filter(|(_, it)| is_work(it)).cloned().collect()
    }

    /// Waits until its processes have heard this many calls and cancellations.
    pub(crate) async fn until_work_heard(&self, count: usize) {
        let mut heard = self.heard.subscribe();
        while self.work_heard().len() < count {
            heard.changed().await.unwrap();
        }
    }

    async fn serve(self, mut end: ServerEnd) {
        let start_time = {
            let mut state = self.state.lock().unwrap();
            state.starts.push(Instant::now());
            if state.broken_starts > 0 {
                state.broken_starts -= 1;
                return;
            }
            state.start_time
        };
        tokio::time::sleep(start_time).await;
        let (say, mut said) = mpsc::channel::<String>(64);
        let over = Arc::new(Notify::new());
        // The tools of a process that was killed are gone with it.
        let mut working = tokio::task::JoinSet::new();
        loop {
            let line = tokio::select! {
                line = end.next_line() => line,
                Some(line) = said.recv() => {
                    end.say(&line).await;
                    continue;
                }
                () = over.notified() => return,
            };
            let Some(line) = line else { break };
            let message = Message::parse(line.as_bytes()).unwrap();
            self.hear(end.number, &message);
            if self.is_curious && message.method() == method::INITIALIZED {
                end.say(&request(2000, "roots/list", "{}")).await;
            }
            match self.answer(&message) {
                Some(answer) => end.say(&answer).await,
                None => {
                    let (server, say, over) = (self.clone(), say.clone(), Arc::clone(&over));
                    let number = end.number;
                    working.spawn(async move { server.work(number, message, say, over).await });
                }
            }
        }
        if self.is_deaf {
            std::future::pending::<()>().await;
        }
    }

    fn hear(&self, number: u32, message: &Message) {
        let what = match message.method() == method::CALL_TOOL {
            true => format!("tools/call {}", message.string(Slot::Name).unwrap_or_default()),
            false if message.method().is_empty() => "answer".to_owned(),
            false => message.method().into_owned(),
        };
        self.heard.send_modify(|heard| heard.push((number, what)));
    }

    /// What it says at once.
    fn answer(&self, message: &Message) -> Option<String> {
        let id = id_of(message);
        let version = self.state.lock().unwrap().version;
        let capabilities = "{\"tools\":{\"listChanged\":true},\"logging\":{}}";
        let info = "{\"name\":\"demo\",\"version\":\"1\"}";
        let of_era = match message.method().as_ref() {
            method::INITIALIZE => Some(Era::Legacy),
            method::DISCOVER => Some(Era::Modern),
            _ => None,
        };
        if let Some(capabilities) = message.raw(Slot::Capabilities) {
            let capabilities = String::from_utf8_lossy(capabilities).into_owned();
            self.state.lock().unwrap().asked_with.push(capabilities);
        }
        let answer = match message.method().as_ref() {
            _ if of_era.is_some() && of_era == self.mute => return None,
            _ if of_era.is_some_and(|era| !self.eras.contains(&era)) => return Some(error(&id)),
            method::INITIALIZE => format!(
                "{{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{capabilities},\"serverInfo\":{info}}}"
            ),
            method::DISCOVER => format!(
                "{{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{capabilities},\
                 \"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{info}}}}}"
            ),
            method::LIST_TOOLS => format!(
                "{{{}\"tools\":[{{\"name\":\"tool{version}\",\"inputSchema\":{{\"type\":\"object\"}}}},\
                 {{\"name\":\"pick it{version}\",\"inputSchema\":{ODD_SCHEMA}}}{}]}}",
                result_type(message),
                self.listed()
            ),
            method::PING | method::SET_LEVEL => "{}".to_owned(),
            _ => return None,
        };
        Some(result(&id, &answer))
    }

    /// The tools that it names besides.
    fn listed(&self) -> String {
        let mut names = self.listed.to_vec();
        if self.is_restless {
            let mut state = self.state.lock().unwrap();
            names.rotate_left(state.lists % self.listed.len());
            state.lists += 1;
        }
        names.into_iter().map(listed).collect()
    }

    /// Works on a call until it is answered, if it is.
    async fn work(self, number: u32, call: Message, say: mpsc::Sender<String>, over: Arc<Notify>) {
        let id = id_of(&call);
        let arguments = call.raw(Slot::Arguments).unwrap_or(b"{}");
        let seconds = json::find(arguments, "seconds");
        let seconds = seconds.map_or(0, |it| String::from_utf8_lossy(it).parse().unwrap());
        let seconds = Duration::from_secs(seconds);
        // The bridge may be gone when something is said.
        let say = async |line: String| drop(say.send(line).await);
        match call.string(Slot::Name).as_deref() {
            Some("echo") => {}
            Some("wait") => tokio::time::sleep(seconds).await,
            Some("note") => {
                let token = call.raw(Slot::MetaProgressToken).unwrap_or(b"null");
                let token = String::from_utf8_lossy(token);
                say(note("progress", &format!("{{\"progressToken\":{token},\"progress\":1}}")))
                    .await;
                tokio::time::sleep(seconds).await;
            }
            Some("release") => {
                say(note("pontoon/release_stream", "{}")).await;
                tokio::time::sleep(seconds).await;
            }
            Some("log") => {
                for level in method::LOG_LEVELS {
                    say(note("message", &format!("{{\"level\":\"{level}\",\"data\":1}}"))).await;
                }
            }
            Some("ask") => {
                let params = "{\"message\":\"who?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}";
                say(request(1000, "elicitation/create", params)).await;
                let mut heard = self.heard.subscribe();
                let answer = (number, "answer".to_owned());
                drop(heard.wait_for(|heard| heard.contains(&answer)).await);
            }
            Some("change") => {
                self.state.lock().unwrap().version += 1;
                let note = plain_notification(method::TOOLS_CHANGED);
                say(String::from_utf8(note.to_vec()).unwrap()).await;
            }
            Some(name) if name.starts_with("pick it") && arguments.ends_with(b":-1}") => return,
            Some(name) if name.starts_with("pick it") => {
                let arguments = String::from_utf8_lossy(arguments);
                self.state.lock().unwrap().picked = arguments.clone().into_owned();
                let said = format!("{{{}\"content\":[],\"got\":{arguments}}}", result_type(&call));
                return say(result(&id, &said)).await;
            }
            Some("page") => {
                let page = r#"{"uri":"ui://page","mimeType":"text/html","text":"<p>hello</p>"}"#;
                let blocks = format!("[{{\"type\":\"resource\",\"resource\":{page}}}]");
                let said = format!("{{{}\"content\":{blocks}}}", result_type(&call));
                return say(result(&id, &said)).await;
            }
            Some("fail") => return say(error(&id)).await,
            Some("end") => return over.notify_one(),
            _ => return,
        }
        let said = format!("{{{}\"content\":[],\"by\":{number}}}", result_type(&call));
        say(result(&id, &said)).await;
    }
}

/// Clients know no such names of arguments, and no alternatives.
const ODD_SCHEMA: &str = r#"{"type":"object","properties":{"$top":{"type":"integer"},"list":{"type":"array","maxItems":3}},"anyOf":[{"required":["$top"]},{"required":["list"]}]}"#;

fn listed(name: &str) -> String {
    format!(",{{\"name\":\"{name}\",\"inputSchema\":{{\"type\":\"object\"}}}}")
}

/// What each result of the modern era says of itself.
fn result_type(request: &Message) -> &'static str {
    if request.has(Slot::MetaVersion) { "\"resultType\":\"complete\"," } else { "" }
}

fn note(what: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{what}\",\"params\":{params}}}")
}

fn error(id: &str) -> String {
    let error = "{\"code\":-32601,\"message\":\"not here\"}";
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}")
}

fn id_of(message: &Message) -> String {
    String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned()
}

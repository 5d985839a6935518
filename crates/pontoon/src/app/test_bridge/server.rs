//! A server of a test with a few tools, each of which does one thing that clients have to live with.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pontoon_wire::{Era, Message, Slot, method};
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
/// - `never` does not answer,
/// - `ask` asks the client, and answers with what it said,
/// - `change` changes the tools, and says so,
/// - `end` ends the process.
#[derive(Clone)]
pub(crate) struct ToolServer {
    era: Era,
    heard: Arc<watch::Sender<Heard>>,
    /// Changes with each `change`.
    version: Arc<Mutex<u32>>,
    /// The first processes end at once, as a program does that cannot start.
    broken_starts: u32,
    /// When each was started.
    starts: Arc<Mutex<Vec<Instant>>>,
    /// How long a process takes until it says a word.
    start_time: Duration,
}

impl ToolServer {
    /// One that speaks this era.
    pub(crate) fn new(era: Era) -> Self {
        Self {
            era,
            heard: Arc::default(),
            version: Arc::default(),
            broken_starts: 0,
            starts: Arc::default(),
            start_time: Duration::ZERO,
        }
    }

    /// The same, but so many of its first processes end at once.
    pub(crate) fn broken_at_first(self, broken_starts: u32) -> Self {
        Self { broken_starts, ..self }
    }

    /// The same, but each process takes this long until it says a word.
    pub(crate) fn slow_to_start(self, start_time: Duration) -> Self {
        Self { start_time, ..self }
    }

    /// Its processes.
    pub(crate) fn servers(&self) -> InMemoryServers {
        let server = self.clone();
        InMemoryServers::new(move |end| server.clone().serve(end))
    }

    /// When its processes were started.
    pub(crate) fn starts(&self) -> Vec<Instant> {
        self.starts.lock().unwrap().clone()
    }

    /// Waits until one of its processes has heard this, and gives which.
    pub(crate) async fn until_heard(&self, what: &str) -> u32 {
        let mut heard = self.heard.subscribe();
        let heard = heard.wait_for(|heard| heard.iter().any(|(_, it)| it == what)).await.unwrap();
        heard.iter().find(|(_, it)| it == what).unwrap().0
    }

    /// The calls and cancellations that its processes heard.
    pub(crate) fn work_heard(&self) -> Vec<(u32, String)> {
        let heard = self.heard.borrow();
        let is_work = |it: &str| it.starts_with(method::CALL_TOOL) || it == method::CANCELLED;
        heard.iter().filter(|(_, it)| is_work(it)).cloned().collect()
    }

    async fn serve(self, mut end: ServerEnd) {
        self.starts.lock().unwrap().push(Instant::now());
        if end.number <= self.broken_starts {
            return;
        }
        tokio::time::sleep(self.start_time).await;
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
            let Some(line) = line else { return };
            let message = Message::parse(line.as_bytes()).unwrap();
            self.hear(end.number, &message);
            match self.answer(&message) {
                Some(answer) => end.say(&answer).await,
                None => {
                    let (server, say, over) = (self.clone(), say.clone(), Arc::clone(&over));
                    let number = end.number;
                    working.spawn(async move { server.work(number, message, say, over).await });
                }
            }
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
        let version = *self.version.lock().unwrap();
        let capabilities = "{\"tools\":{\"listChanged\":true},\"logging\":{}}";
        let info = "{\"name\":\"demo\",\"version\":\"1\"}";
        let answer = match (message.method().as_ref(), self.era) {
            (method::INITIALIZE, Era::Legacy) => format!(
                "{{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{capabilities},\"serverInfo\":{info}}}"
            ),
            (method::DISCOVER, Era::Modern) => format!(
                "{{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{capabilities},\
                 \"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{info}}}}}"
            ),
            (method::LIST_TOOLS, _) => format!(
                "{{\"tools\":[{{\"name\":\"tool{version}\",\"inputSchema\":{{\"type\":\"object\"}}}}]}}"
            ),
            (method::PING | method::SET_LEVEL, _) => "{}".to_owned(),
            (method::INITIALIZE | method::DISCOVER, _) => {
                let error = "{\"code\":-32601,\"message\":\"no such method\"}";
                return Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}"));
            }
            _ => return None,
        };
        Some(result(&id, &answer))
    }

    /// Works on a call until it is answered, if it is.
    async fn work(self, number: u32, call: Message, say: mpsc::Sender<String>, over: Arc<Notify>) {
        let id = id_of(&call);
        let arguments = call.raw(Slot::Arguments).unwrap_or(b"{}");
        let seconds = pontoon_wire::json::find(arguments, "seconds");
        let seconds = seconds.map_or(0, |it| String::from_utf8_lossy(it).parse().unwrap());
        let seconds = Duration::from_secs(seconds);
        match call.string(Slot::Name).as_deref() {
            Some("echo") => {}
            Some("wait") => tokio::time::sleep(seconds).await,
            Some("note") => {
                let token = call.raw(Slot::MetaProgressToken).unwrap_or(b"null");
                let token = String::from_utf8_lossy(token);
                let params = format!("{{\"progressToken\":{token},\"progress\":1}}");
                let note = format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}"
                );
                drop(say.send(note).await);
                tokio::time::sleep(seconds).await;
            }
            Some("ask") => {
                let params = "{\"message\":\"who?\",\"requestedSchema\":{\"type\":\"object\",\"properties\":{}}}";
                let question = request(1000, "elicitation/create", params);
                drop(say.send(question).await);
                let mut heard = self.heard.subscribe();
                let answer = (number, "answer".to_owned());
                drop(heard.wait_for(|heard| heard.contains(&answer)).await);
            }
            Some("change") => {
                *self.version.lock().unwrap() += 1;
                let note = plain_notification(method::TOOLS_CHANGED);
                drop(say.send(String::from_utf8(note.to_vec()).unwrap()).await);
            }
            Some("end") => return over.notify_one(),
            _ => return,
        }
        let said = format!("{{\"content\":[],\"by\":{number}}}");
        let said = match self.era {
            Era::Legacy => said,
            Era::Modern => said.replacen('{', "{\"resultType\":\"complete\",", 1),
        };
        drop(say.send(result(&id, &said)).await);
    }
}

fn id_of(message: &Message) -> String {
    String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned()
}

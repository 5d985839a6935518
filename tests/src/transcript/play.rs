//! Plays a transcript: posts what the client says, and compares what it hears.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Captures, Step, Transcript, fill, matches};
use crate::carried::CarriedServer;
use crate::client::{Endpoint, Exchange, Legacy, Modern, Request, Speaker, mcp};
use crate::rig::{Binaries, Plan, Rig, Server, holds_within};

/// How long the player waits for what must happen: longer than the whole stop ladder.
const PATIENCE: Duration = Duration::from_secs(20);

/// Plays `transcript` against a bridge of its own, and sees that nothing is left of it.
///
/// # Errors
///
/// The line that did not go as written.
///
/// # Panics
///
/// When the bridge does not start or leaves something behind.
pub fn play(transcript: &Transcript, binaries: &Binaries) -> Result<(), String> {
    let setup = &transcript.setup;
    let args: Vec<&str> = setup.args.iter().map(String::as_str).collect();
    let mut server = Server::new("it", binaries.named(&setup.program), &args);
    server.settings = Value::Object(setup.settings.clone());
    if setup.never_ready {
        server = server.that_may_fail();
    }
    play_with(transcript, Plan::new(binaries.clone(), [server]).start(), Clone::clone)
}

/// The same with the server behind a WebSocket, where the bridge reaches it as an application. Where the bridge fails a call,
/// its client hears instead that the outcome is unknown, for the same reason.
///
/// # Errors
///
/// The line that did not go as written.
///
/// # Panics
///
/// When the bridge does not start or leaves something behind.
pub fn play_over_websocket(transcript: &Transcript, binaries: &Binaries) -> Result<(), String> {
    let setup = &transcript.setup;
    let app = CarriedServer::start(binaries.named(&setup.program), &setup.args);
    let mut settings = setup.settings.clone();
    // Whose process it is, is not for the bridge to say.
    settings.remove("mode");
    settings.insert("url".to_owned(), app.url().into());
    let server =
        Server { settings: Value::Object(settings), ..Server::reached("it", "url", &app.url()) };
    let rig = Plan::new(binaries.clone(), [server]).start();
    if !setup.never_ready {
        rig.wait_for_state("it", "ready");
    }
    play_with(transcript, rig, unknown_outcome)
}

/// What is heard of an application in place of this.
fn unknown_outcome(pattern: &Value) -> Value {
    let error = &pattern["error"];
    let is_of_bridge = error["code"].as_i64().is_some_and(|code| (-31599..-31500).contains(&code));
    if !is_of_bridge {
        return pattern.clone();
    }
    let why = error["message"].as_str().unwrap_or_default().trim_end_matches('…');
    let why = why.replace("of the server `it`", "of the application");
    let content = json!([{"type": "text", "text": format!("{why}…")}]);
    let meta = json!({"pontoon/outcome": "unknown", "…": "…"});
    let result = json!({"content": content, "isError": true, "_meta": meta, "…": "…"});
    json!({"jsonrpc": "2.0", "id": pattern["id"], "result": result})
}

fn play_with(
    transcript: &Transcript,
    rig: Rig,
    heard_as: fn(&Value) -> Value,
) -> Result<(), String> {
    let mut player = Player::new(rig, transcript);
    player.heard_as = heard_as;
    for (number, step) in &transcript.steps {
        player.step(step).map_err(|what| {
            format!("line {number}: {what}\n--- the bridge said ---\n{}", player.rig.stderr())
        })?;
    }
    player.hear_nothing().map_err(|what| format!("at the end: {what}"))?;
    if let Talk::Legacy(session) = player.talk {
        session.end();
    }
    player.left.into_iter().for_each(Legacy::end);
    player.rig.stop();
    Ok(())
}

/// How the client talks.
enum Talk {
    /// No session yet.
    Opening,
    Legacy(Legacy),
    Modern(Modern),
    /// The session is over.
    Ended,
}

/// What the threads that read answers have to tell.
enum Heard {
    /// The post of this number has a status.
    Begun(usize, u16),
    Message(Value),
    /// The post of this number is answered in full.
    Ended(usize, io::Result<()>),
}

struct Player {
    rig: Rig,
    endpoint: Endpoint,
    talk: Talk,
    /// Sessions that the client has opened and left.
    left: Vec<Legacy>,
    captures: Captures,
    /// What of the transcript is heard otherwise.
    heard_as: fn(&Value) -> Value,
    tell: Sender<Heard>,
    heard: Receiver<Heard>,
    waiting: Vec<Value>,
    /// What may be heard besides.
    allowed: Option<Value>,
    /// The status of each post that has one.
    statuses: Vec<Option<u16>>,
    open: usize,
}

impl Player {
    fn new(rig: Rig, transcript: &Transcript) -> Self {
        let endpoint = rig.endpoint("it");
        let opens = |step: &Step| matches!(step, Step::Post(it) if it["method"] == "initialize");
        let talk = if transcript.setup.modern {
            Talk::Modern(Modern::new(&endpoint))
        } else if transcript.steps.iter().any(|(_, step)| opens(step)) {
            Talk::Opening
        } else {
            Talk::Legacy(Legacy::open(&endpoint))
        };
        let (tell, heard) = mpsc::channel();
        let (captures, waiting, statuses) = (Captures::new(), Vec::new(), Vec::new());
        Self {
            rig,
            endpoint,
            talk,
            left: Vec::new(),
            captures,
            heard_as: Clone::clone,
            tell,
            heard,
            waiting,
            allowed: None,
            statuses,
            open: 0,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Post(message) => self.post(&fill(message, &self.captures)),
            Step::Listen => self.listen(),
            Step::End => self.end(),
            Step::Hear(pattern) => {
                let pattern = &(self.heard_as)(pattern);
                let message = self.next_message(pattern)?;
                matches(pattern, &message, &mut self.captures)
                    .map_err(|difference| format!("{difference}\nin {message}"))
            }
            Step::HearNothing => self.hear_nothing(),
            Step::Allow(pattern) => {
                self.allowed.clone_from(pattern);
                Ok(())
            }
            Step::Status(wanted) => self.last_status().and_then(|status| match status {
                status if status == *wanted => Ok(()),
                status => Err(format!("status {status}, not {wanted}")),
            }),
            Step::Child { running } => {
                let there = || !self.rig.children().is_empty();
                match holds_within(PATIENCE, || there() == *running) {
                    true => Ok(()),
                    false => Err(format!("children: {:?}", self.rig.children())),
                }
            }
            Step::Healed(code) => {
                // An error may name it, too, if it explains that.
                let code = format!("\"code\":\"{code}\"");
                let count = || self.rig.stderr().lines().filter(|it| it.contains(&code)).count();
                match holds_within(PATIENCE, || count() == 1) {
                    true => Ok(()),
                    false => Err(format!("{} lines of the log name {code}, not one", count())),
                }
            }
        }
    }

    fn post(&mut self, message: &Value) -> Result<(), String> {
        let request = match &self.talk {
            Talk::Opening => Request::post(&self.endpoint.path, message.to_string()),
            Talk::Legacy(session) => session.request(message),
            Talk::Modern(client) => {
                let id = message.get("id");
                let method = message["method"].as_str().unwrap_or_default();
                let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
                let mut full = client.message(id.unwrap_or(&Value::Null), method, params);
                if id.is_none() {
                    full.as_object_mut().map(|members| members.remove("id"));
                }
                client.request(&full)
            }
            Talk::Ended => return Err(String::from("the session has ended")),
        };
        let number = self.statuses.len();
        self.statuses.push(None);
        self.open += 1;
        if message["method"] == "initialize" {
            return self.initialize(&request, number);
        }
        let (tell, address) = (self.tell.clone(), self.endpoint.address);
        thread::spawn(move || {
            let outcome = request.begin(address).and_then(|exchange| {
                // The player may be gone already, when a line before has failed.
                let _ = tell.send(Heard::Begun(number, exchange.head.status));
                read(exchange, &tell)
            });
            let _ = tell.send(Heard::Ended(number, outcome));
        });
        // Only a request is worth waiting for later; all else has to be with the bridge before
        // the next line is said.
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        if is_request { Ok(()) } else { self.last_status().map(drop) }
    }

    /// The first post of a session; what follows needs the session it opens.
    fn initialize(&mut self, request: &Request, number: usize) -> Result<(), String> {
        let response = request.send(self.endpoint.address).map_err(|error| error.to_string())?;
        self.statuses[number] = Some(response.status());
        self.open -= 1;
        self.waiting.extend(response.messages().map_err(|error| error.to_string())?);
        // A client that opens a session again goes on with the new one; both have to be ended.
        if let Some(session) = response.head.header("mcp-session-id") {
            let version = response.answer()["result"]["protocolVersion"].clone();
            let version = version.as_str().unwrap_or(mcp::LEGACY).to_owned();
            let new = Legacy::resume(&self.endpoint, session, &version);
            if let Talk::Legacy(old) = std::mem::replace(&mut self.talk, Talk::Legacy(new))
                && old.session != session
            {
                self.left.push(old);
            }
        }
        Ok(())
    }

    fn listen(&mut self) -> Result<(), String> {
        let Talk::Legacy(session) = &self.talk else {
            return Err(String::from("only a legacy session has a stream"));
        };
        let exchange = session.listen(None);
        self.statuses.push(Some(exchange.head.status));
        let tell = self.tell.clone();
        thread::spawn(move || read(exchange, &tell));
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.talk, Talk::Ended) {
            Talk::Legacy(session) => {
                session.end();
                Ok(())
            }
            _ => Err(String::from("no session to end")),
        }
    }

    fn last_status(&mut self) -> Result<u16, String> {
        let last = self.statuses.len().checked_sub(1).ok_or("nothing was posted")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.statuses[last] {
                return Ok(status);
            }
            self.take_heard(deadline)?.ok_or("no status came")?;
        }
    }

    fn next_message(&mut self, pattern: &Value) -> Result<Value, String> {
        let deadline = Instant::now() + PATIENCE;
        while self.waiting.is_empty() {
            let taken = self.take_heard(deadline)?;
            taken.ok_or_else(|| format!("nothing was heard, wanted {pattern}"))?;
        }
        Ok(self.waiting.remove(0))
    }

    fn hear_nothing(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.open > 0 {
            self.take_heard(deadline)?.ok_or("a post is still not answered in full")?;
        }
        match self.waiting.first() {
            None => Ok(()),
            Some(message) => Err(format!("more was heard: {message}")),
        }
    }

    /// Takes one thing from the threads, or `None` at the deadline.
    fn take_heard(&mut self, deadline: Instant) -> Result<Option<()>, String> {
        match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Heard::Begun(number, status)) => self.statuses[number] = Some(status),
            Ok(Heard::Message(message)) => {
                let fits = |it: &Value| matches(it, &message, &mut Captures::new()).is_ok();
                if !self.allowed.as_ref().is_some_and(fits) {
                    self.waiting.push(message);
                }
            }
            Ok(Heard::Ended(number, outcome)) => {
                self.open -= 1;
                outcome.map_err(|error| format!("post {}: {error}", number + 1))?;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
        }
        Ok(Some(()))
    }
}

fn read(mut exchange: Exchange, tell: &Sender<Heard>) -> io::Result<()> {
    while let Some(message) = exchange.next_message()? {
        if tell.send(Heard::Message(message)).is_err() {
            break;
        }
        if !exchange.head.is_stream() {
            break;
        }
    }
    Ok(())
}

//! What one client of the soak does, and whether what it hears is right or honest.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pontoon_tests::client::{Client, Connection, Endpoint, Era, Request, Response, Speaker};
use serde_json::{Value, json};

use crate::stress::Random;

/// The servers that behave, and how they are run.
pub(super) const GOOD: [&str; 4] = ["plain", "spare", "session", "kept"];
/// Those that flood: their standard error, their output, their output with lines.
pub(super) const BAD: [&str; 3] = ["loud", "burst", "noise"];

/// How calls ended, by a word for each way.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, usize>>);

impl Tally {
    pub(super) fn count(&self, word: &'static str) {
        *self.lock().entry(word).or_default() += 1;
    }

    pub(super) fn total(&self) -> usize {
        self.lock().values().sum()
    }

    pub(super) fn of(&self, word: &str) -> usize {
        self.lock().get(word).copied().unwrap_or_default()
    }

    pub(super) fn summary(&self) -> String {
        let words: Vec<_> = self.lock().iter().map(|(word, it)| format!("{it} {word}")).collect();
        words.join(", ")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client asks for.
enum Wish {
    Token,
    List,
    Big,
    File { is_fetched: bool },
    Crash,
    Hang,
    GiveUp,
    Flood(&'static str),
}

fn wish(random: &mut Random) -> Wish {
    match random.next() % 2000 {
        0..4 => Wish::Flood(BAD[usize::try_from(random.next() % 3).unwrap_or_default()]),
        4..16 => Wish::Hang,
        16..40 => Wish::Crash,
        40..100 => Wish::GiveUp,
        100..180 => Wish::Big,
        180..400 => Wish::List,
        400..800 => Wish::File { is_fetched: random.next().is_multiple_of(4) },
        _ => Wish::Token,
    }
}

/// One client: with a session at each server, or none at all.
pub(super) struct Caller {
    number: usize,
    era: Era,
    random: Random,
    endpoint: Endpoint,
    clients: BTreeMap<&'static str, (Client, Instant)>,
}

impl Caller {
    pub(super) fn new(number: usize, endpoint: &Endpoint) -> Self {
        let era = if number.is_multiple_of(2) { Era::Modern } else { Era::Legacy };
        let (random, endpoint) = (Random(number as u64 + 1), endpoint.clone());
        Self { number, era, random, endpoint, clients: BTreeMap::new() }
    }

    /// Makes a call; gives the word for its end, or what is wrong with it.
    pub(super) fn call(&mut self, id: u64) -> Result<&'static str, String> {
        let good = GOOD[usize::try_from(self.random.next() % 4).unwrap_or_default()];
        let token = format!("{}-{id}-{:x}", self.number, self.random.next());
        let said = |text: &str| format!("{token} {text}");
        match wish(&mut self.random) {
            Wish::Token => {
                let response = self.post(good, id, "token", &json!({"value": token}))?;
                let is_right = response.tool_text().is_some_and(|it| it.starts_with(&said("")));
                judge(&response, id, is_right, "right", &[429, 502, 504, 507])
            }
            Wish::List => {
                let response = self.ask(good, id, "tools/list", json!({}))?;
                let is_right = response.answer().pointer("/result/tools/10").is_some();
                judge(&response, id, is_right, "lists", &[])
            }
            Wish::Big => {
                let response = self.post(good, id, "big", &json!({"bytes": 100_000}))?;
                let is_right = response.tool_text().is_some_and(|text| text.len() == 100_000);
                judge(&response, id, is_right, "large", &[429, 502, 504, 507])
            }
            Wish::File { is_fetched } => self.make_file(good, id, &said("日本語"), is_fetched),
            Wish::Crash => {
                let response = self.post(good, id, "crash", &json!({}))?;
                judge(&response, id, false, "", &[502, 507, 429])
                    .map(|word| if word == "lost a child" { "crashed" } else { word })
            }
            Wish::Hang => {
                let response = self.post(good, id, "wait", &json!({"ms": 600_000}))?;
                judge(&response, id, false, "", &[504, 502, 507, 429])
                    .map(|word| if word == "slow" { "timed out" } else { word })
            }
            Wish::GiveUp => {
                let client = self.client(good);
                let connection = client.send_call(id, "wait", json!({"ms": 50}));
                client.give_up(id, connection);
                Ok("given up")
            }
            Wish::Flood(server) => {
                let response = self.post(server, id, "echo", &json!({"text": token}))?;
                let is_right = response.tool_text().as_deref() == Some(&token);
                judge(&response, id, is_right, "flooded", &[502, 504, 507, 429])
                    .map(|word| if word == "busy" { word } else { "flooded" })
            }
        }
    }

    /// Lets a tool write a file, and fetches it.
    fn make_file(
        &mut self,
        server: &'static str,
        id: u64,
        text: &str,
        is_fetched: bool,
    ) -> Result<&'static str, String> {
        let arguments = json!({"name": format!("資料 {id}.txt"), "text": text});
        let response = self.post(server, id, "write_file", &arguments)?;
        let said = response.tool_text().unwrap_or_default();
        if said.contains("No space left on device") {
            return Ok("without room");
        }
        let is_right = said.starts_with("wrote ");
        let word = judge(&response, id, is_right, "files", &[429, 502, 504, 507])?;
        if word != "files" || !is_fetched {
            return Ok(word);
        }
        // Files that found no room before may come with this one.
        let links = response.head.headers.iter().filter(|(name, _)| name == "link");
        let own = format!("%20{id}.txt>");
        let link = links.map(|(_, link)| link).find(|link| link.contains(&own));
        let link = link.ok_or_else(|| format!("call {id}: no link: {:?}", response.head))?;
        let path = link.find("/files/").map(|start| &link[start..]).unwrap_or_default();
        let path = path.split('>').next().unwrap_or_default();
        let fetched = Request::new("GET", path).header("Connection", "close");
        let fetched = fetched.send(self.endpoint.address).map_err(|error| error.to_string())?;
        match fetched.status() == 200 && fetched.body == text.as_bytes() {
            true => Ok("files fetched"),
            false => Err(format!("call {id}: {path} is {}: {}", fetched.status(), fetched.text())),
        }
    }

    fn post(
        &mut self,
        server: &'static str,
        id: u64,
        tool: &str,
        arguments: &Value,
    ) -> Result<Response, String> {
        self.ask(server, id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn ask(
        &mut self,
        server: &'static str,
        id: u64,
        method: &str,
        params: Value,
    ) -> Result<Response, String> {
        let client = self.client(server);
        let message = client.message(&json!(id), method, params);
        let response = client.post(&message).map_err(|error| format!("call {id}: {error}"))?;
        match client.kept().as_mut().is_none_or(Connection::is_quiet) {
            true => Ok(response),
            false => Err(format!("call {id}: more came than one answer")),
        }
    }

    fn client(&mut self, server: &'static str) -> &mut Client {
        let (era, number) = (self.era, self.number);
        let endpoint = Endpoint { path: format!("/mcp/{server}"), ..self.endpoint.clone() };
        let (client, last_used) = self.clients.entry(server).or_insert_with(|| {
            let client = Client::new(era, &endpoint);
            (client.with_header("X-Session-Id", &format!("soak-{number}")), Instant::now())
        });
        // As clients do: the bridge closes a connection that is quiet for ten.
        if last_used.elapsed() > Duration::from_secs(5) {
            *client.kept() = None;
        }
        *last_used = Instant::now();
        client
    }

    /// Ends its sessions.
    pub(super) fn end(self) {
        self.clients.into_values().for_each(|(client, _)| client.end());
    }
}

/// The word for an answer that is right, or an honest error of these.
fn judge(
    response: &Response,
    id: u64,
    is_right: bool,
    word: &'static str,
    honest: &[u64],
) -> Result<&'static str, String> {
    let messages = response.messages().map_err(|error| format!("call {id}: {error}"))?;
    let wrong = || Err(format!("call {id}: {}", response.text()));
    let [.., answer] = &messages[..] else { return wrong() };
    if answer["id"] != id {
        return wrong();
    }
    let text = answer.pointer("/result/content/0/text").and_then(Value::as_str);
    if text.is_some_and(|text| text.contains("This call was not made")) {
        return Ok("told of a lost child");
    }
    if answer.get("error").is_none() {
        return if is_right { Ok(word) } else { wrong() };
    }
    let says = answer["error"]["message"].as_str().is_some_and(|text| !text.is_empty());
    match response.told_status() {
        status if !says || !honest.contains(&status) => wrong(),
        429 => Ok("busy"),
        502 => Ok("lost a child"),
        504 => Ok("slow"),
        507 => Ok("without room"),
        _ => wrong(),
    }
}

//! A back and a server without a process, for tests: a whole call runs in one runtime, with the clock stopped.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pontoon_wire::{Era, Message, Revision, Slot, method};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::child::in_memory::{InMemoryServers, ServerEnd};
use super::child::process::Starter;
use super::child::told::Hearers;
use super::outputs::Promise;
use super::{Back, Surroundings, open_store};
use crate::call::{Call, CallError, Outcome, Questions, Reply};
use crate::client::{Client, Key, Person};
use crate::config::{BridgeSettings, Config, ConfigSource, Environment, Mode, Server};
use crate::ids::Ids;
use crate::outbox::{Next, Outbox};

/// One process for each conversation, let go after half an hour.
pub(crate) const STATEFUL: Mode =
    Mode::Stateful { idle: Duration::from_secs(1800), per_address: 1, per_client: 4 };

/// A back whose children are tasks of the test.
pub(crate) struct Pair {
    pub(crate) back: Arc<Back>,
    pub(crate) servers: InMemoryServers,
    pub(crate) around: Surroundings,
    folder: Arc<TempDir>,
}

impl Pair {
    pub(crate) fn new(servers: InMemoryServers, change: impl FnOnce(&mut Server)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server("demo");
        change(&mut server);
        let config = config(folder.path(), server);
        let store = open_store(&config, folder.path()).unwrap();
        let ids = Ids::new(b"secret", "here", SystemTime::UNIX_EPOCH);
        let starter = Starter::InMemory(servers.clone());
        let mut around = Surroundings::new(&config, store, ids, starter, Arc::default()).unwrap();
        around.machine.hearers = Hearers::Operator;
        let server = Arc::clone(&config.servers[0]);
        let back = Back::new(server, around.clone(), CancellationToken::new());
        Self { back: Arc::new(back), servers, around, folder: Arc::new(folder) }
    }

    /// Another server on the same machine.
    pub(crate) fn another(&self, change: impl FnOnce(&mut Server)) -> Self {
        let mut server = server("other");
        change(&mut server);
        let around = self.around.clone();
        let back = Back::new(Arc::new(server), around.clone(), CancellationToken::new());
        let (servers, folder) = (self.servers.clone(), Arc::clone(&self.folder));
        Self { back: Arc::new(back), servers, around, folder }
    }

    /// Waits until no child is left. With the clock stopped that takes no time.
    pub(crate) async fn until_ended(&self) {
        let mut look = tokio::time::interval(Duration::from_secs(1));
        while self.back.living() > 0 {
            look.tick().await;
        }
    }

    /// Makes a call of this client, under the id 7, to a child of this era.
    pub(crate) fn call(
        &self,
        client: &Arc<Client>,
        child: Era,
        method: &str,
        params: &str,
    ) -> MadeCall {
        self.call_promised(client, child, method, params, None)
    }

    /// The same for a tool that promises to give this back.
    pub(crate) fn call_promised(
        &self,
        client: &Arc<Client>,
        child: Era,
        method: &str,
        params: &str,
        promise: Option<Arc<Promise>>,
    ) -> MadeCall {
        let request =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"{method}\",\"params\":{params}}}");
        let request = Message::parse(request.as_bytes()).unwrap();
        let (outbox, questions) = (Arc::new(Outbox::default()), Arc::new(Questions::default()));
        let asked = (client.era() == Era::Legacy).then(|| Arc::clone(&questions));
        let reply = Reply::new(Bytes::from_static(b"7"), Arc::clone(&outbox), asked);
        let (client, cancel) = (Arc::clone(client), CancellationToken::new());
        let clock = self.back.clock(&request);
        let call = Call {
            request,
            client,
            cancel: cancel.clone(),
            clock,
            may_repeat: false,
            promise,
            reply,
        };
        let back = Arc::clone(&self.back);
        tokio::spawn(async move { back.take(call, child).await });
        MadeCall { outbox, questions, cancel }
    }

    /// The answer to a tool call of this client on a legacy child.
    pub(crate) async fn call_tool(&self, client: &Arc<Client>, name: &str) -> String {
        let params = format!("{{\"name\":\"{name}\",\"arguments\":{{}}}}");
        self.call(client, Era::Legacy, method::CALL_TOOL, &params).answer().await
    }
}

/// A server of which nothing is written but its name. Its program is there, and never started.
pub(crate) fn server(name: &str) -> Server {
    Server::new(name.parse().unwrap(), Ok("/bin/true".into()), Vec::new())
}

/// The configuration of a bridge whose only server is this one, with its jobs in `folder`. What depends on
/// the machine is set.
pub(crate) fn config(folder: &Path, server: Server) -> Config {
    let settings = BridgeSettings {
        jobs_dir: folder.to_owned(),
        max_concurrent: 8,
        max_total_processes: 8,
        memory_budget: Some(1 << 30),
        min_free_disk: 0,
        ..BridgeSettings::unset()
    };
    let (servers, source) = (vec![Arc::new(server)], ConfigSource::Demo { made_key: None });
    Config { settings, servers, source, environment: Environment::default() }
}

/// A client of this revision, in the conversation of this name.
pub(crate) fn client(revision: Revision, conversation: &str, capabilities: &str) -> Arc<Client> {
    Arc::new(Client {
        revision,
        capabilities: Bytes::from(capabilities.to_owned()),
        info: Bytes::from_static(b"{}"),
        log_level: None,
        key: Key::Session(conversation.into()),
        person: Person::local(),
        feed: None,
        subscriptions: Vec::new(),
    })
}

/// A call that was made.
pub(crate) struct MadeCall {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) cancel: CancellationToken,
}

impl MadeCall {
    /// What the client hears next, without its end.
    pub(crate) async fn message(&self) -> Message {
        match self.outbox.next().await {
            Next::Message(text) => Message::parse(text.to_bytes().as_ref()).unwrap(),
            other => panic!("{other:?} in place of a message"),
        }
    }

    /// How the call ends; what comes before is passed over.
    pub(crate) async fn end(&self) -> Option<Outcome> {
        loop {
            if let Next::End(outcome) = self.outbox.next().await {
                return outcome;
            }
        }
    }

    /// The text of its answer, or what the client hears instead.
    pub(crate) async fn answer(&self) -> String {
        match self.end().await {
            Some(Outcome::Answer(text, ..)) => String::from_utf8(text.to_bytes().to_vec()).unwrap(),
            Some(Outcome::Failed(error, _)) => error.to_string(),
            None => "cancelled".to_owned(),
        }
    }

    /// Why it failed.
    pub(crate) async fn failure(&self) -> CallError {
        match self.end().await {
            Some(Outcome::Failed(error, _)) => error,
            other => panic!("{other:?} in place of a failure"),
        }
    }
}

/// Serves as a legacy server that says by itself only what the handshake and pings need. `answer` gets the rest of
/// what it is told, and says what it writes.
pub(crate) async fn serve_legacy(
    mut end: ServerEnd,
    mut answer: impl FnMut(&Message, &str) -> Vec<String>,
) {
    while let Some(line) = end.next_line().await {
        let message = Message::parse(line.as_bytes()).unwrap();
        let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned();
        let lines = match message.method().as_ref() {
            method::INITIALIZE => vec![result(
                &id,
                "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{\"listChanged\":true}},\
                 \"serverInfo\":{\"name\":\"demo\",\"version\":\"1\"}}",
            )],
            method::PING => vec![result(&id, "{}")],
            _ => answer(&message, &id),
        };
        for line in lines {
            end.say(&line).await;
        }
    }
}

/// A server that answers each tool call with the name of the tool and the number of its process.
pub(crate) fn naming() -> InMemoryServers {
    InMemoryServers::new(|end| {
        let number = end.number;
        serve_legacy(end, move |message, id| {
            let name = message.string(Slot::Name).unwrap_or_default();
            let is_call = message.method() == method::CALL_TOOL;
            let text = format!("{{\"content\":[],\"said\":\"{name} by {number}\"}}");
            is_call.then(|| result(id, &text)).into_iter().collect()
        })
    })
}

/// The answer to a request with this id.
pub(crate) fn result(id: &str, result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

//! The launcher of one server: from its entry in the configuration to a child that is ready for calls.
//!
//! It says what is run, where and within which walls; the `supervise` crate runs it. Which call the child is for, and
//! how long it is kept, is for `keep` to say.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pontoon_supervise::SpawnError;
use pontoon_wire::method;
use tokio::sync::{Notify, watch};
use tracing::{Instrument, Span};

use super::isolation::{Impossible, Walls};
use super::last_words::{self, ChildWords};
use super::machine::{Machine, WHAT_TO_DO};
use super::population::{Living, Population};
use super::process::Process;
use super::ready::ReadyChild;
use super::stage::StartStage;
use super::told::Hearers;
use super::workspace::{OwnJob, Temporary, Workspace, blocking};
use crate::back::conversation::Conversation;
use crate::back::conversation::abilities::can_answer;
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::handshake::{HandshakeError, Opening, shake_hands};
use crate::back::conversation::link::{Link, LinkOptions};
use crate::back::conversation::list_changes::ListChanges;
use crate::back::remote::live_app::LiveApp;
use crate::back::remote::token::TokenReader;
use crate::call::CallError;
use crate::client::{Client, Key, Person};
use crate::clock::{Clock, now};
use crate::config::{
    AppHeader, Environment, FileLinks, MessageFraming, Mode, ProgramError, Server, TokenSource,
    proxy_secrets,
};
use crate::errors::chain;
use crate::hex::hex;
use crate::jobs::{JobError, SessionWorkspace};
use crate::observe::heals::HealLog;
use crate::observe::metrics::{Limit, ServerMetrics};
use crate::observe::redact::Redactor;

/// How long a child may take for its handshake, if the call itself has longer.
pub const HANDSHAKE: Duration = Duration::from_secs(60);

/// How long a child may take to say that it has read what it was told.
const SETTLE: Duration = Duration::from_secs(1);

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The operating system could not start it.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// There is no place for it to work in.
    #[error("there is no place for the server to work in: {0}")]
    Workspace(String),
    /// It started, but the handshake failed.
    #[error("{error}{how}{}", last_words::told(.complaints))]
    Handshake {
        /// What failed.
        error: HandshakeError,
        /// How the process ended, if it did.
        how: String,
        /// The last lines of its standard error.
        complaints: Vec<String>,
    },
}

/// Who is there to be asked by a child.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Audience<'c> {
    /// The client whose call waits for it, with this clock.
    Client(&'c Clock),
    /// A client that is still to come.
    Later,
}

/// A process that was started, and to which nothing was said yet.
#[derive(Debug)]
pub(crate) struct Unopened(pub(crate) ReadyChild);

/// Starts the children of one server.
#[derive(Debug)]
pub struct Launcher {
    /// The server's entry in the configuration.
    pub server: Arc<Server>,
    /// What the launchers of all servers share.
    pub machine: Machine,
    /// What was healed.
    pub heals: Arc<HealLog>,
    /// What is counted of this server.
    pub metrics: Arc<ServerMetrics>,
    /// What its children say of their lists.
    pub changed: Arc<ListChanges>,
    /// Told when a child did not start, or ended in a call: perhaps the server is broken.
    pub doubted: Notify,
    /// How far the last start is.
    pub stage: watch::Sender<StartStage>,
    /// What each of its children sees of our own environment.
    pub(super) inherited: Environment,
    pub(super) walls: Arc<Walls>,
    /// Those of a program that was found elsewhere later.
    pub(super) moved_walls: Mutex<Option<(PathBuf, Arc<Walls>)>>,
    /// Keeps what its children are told in confidence out of what they say last.
    pub(super) redactor: Arc<Redactor>,
    population: Arc<Population>,
    /// Whether a child of this server was asked for a sign of life and gave none.
    ignores_pings: AtomicBool,
    /// Whether the server turned out to take nothing but `Content-Length` frames.
    pub(super) takes_frames: AtomicBool,
}

impl Launcher {
    /// The launcher of `server`, with no child yet.
    pub fn new(server: Arc<Server>, machine: Machine) -> Self {
        let proxies = proxy_secrets(&machine.environment);
        let secrets = secrets_of(&server).chain(proxies.iter().map(String::as_bytes));
        let heals = Arc::new(HealLog::with_modes(server.name.as_str(), server.heal.protocol()));
        let metrics = machine.metrics.server(server.name.as_str());
        let population =
            Population::new(Arc::clone(&heals), Arc::clone(&metrics), machine.endings.clone());
        let walls =
            Walls::new(&server, machine.starter.support(), &machine.private, &machine.environment);
        Self {
            redactor: Arc::new(Redactor::new(secrets)),
            inherited: server.inherited(&machine.environment),
            walls: Arc::new(walls),
            moved_walls: Mutex::default(),
            population: Arc::new(population),
            changed: Arc::default(),
            doubted: Notify::new(),
            stage: watch::Sender::default(),
            ignores_pings: AtomicBool::new(false),
            takes_frames: AtomicBool::new(false),
            server,
            machine,
            heals,
            metrics,
        }
    }

    /// The application that its entry names, if it is no program.
    pub(crate) fn live_app(&self) -> Option<LiveApp> {
        let app = self.server.app.clone()?;
        let (starter, environment) =
            (self.machine.starter.clone(), self.machine.environment.clone());
        let (is_shared, secrets) = (self.server.mode.is_shared(), self.machine.secrets.clone());
        let link = self.link_options(!is_shared, Span::none());
        let tokens = TokenReader { starter, environment, secrets };
        let name = match self.machine.hearers {
            Hearers::Clients => Some(self.server.name.to_string()),
            Hearers::Operator => None,
        };
        let endings = self.machine.endings.clone();
        let app = LiveApp::new(app, link, Arc::clone(&self.changed), (tokens, endings), name);
        if is_shared {
            app.meet(&Arc::new(Client::everyone()));
        }
        Some(app)
    }

    fn link_options(&self, one_client: bool, span: Span) -> LinkOptions {
        LinkOptions {
            heal: self.server.heal.protocol(),
            writes_frames: self.writes_frames(),
            max_message: self.machine.max_message,
            held: Arc::clone(&self.machine.held),
            one_client,
            heals: Arc::clone(&self.heals),
            messages: self.machine.messages.clone(),
            span,
        }
    }

    /// Whether children are written to in `Content-Length` frames from the start.
    pub(super) fn writes_frames(&self) -> bool {
        self.server.framing == MessageFraming::ContentLength
            || self.takes_frames.load(Ordering::Relaxed)
    }

    /// How many children live, of every kind.
    pub fn living(&self) -> usize {
        self.population.living()
    }

    /// Whether its children can be kept apart as its configuration asks.
    ///
    /// # Errors
    ///
    /// What this system cannot give.
    pub fn check_isolation(&self) -> Result<(), Impossible> {
        self.walls.check(&self.server, self.machine.starter.support())
    }

    /// The isolation of its children, in a word.
    pub fn isolation(&self) -> &'static str {
        self.walls.reached(self.machine.starter.support())
    }

    /// Refuses another child while too many old ones will not end.
    pub(crate) fn check_stopping(&self) -> Result<(), CallError> {
        let limit = self.machine.max_stopping;
        if self.population.stopping() < limit {
            return Ok(());
        }
        self.machine.metrics.refused(Limit::Leaving);
        let what = format!("{limit} processes of the server `{}` will not end", self.server.name);
        Err(CallError::Busy { what, retry_after_seconds: 10 })
    }

    /// A workspace for a child of this client.
    pub(crate) async fn workspace_for(&self, client: &Client) -> Result<Workspace, CallError> {
        let workspace = match self.keeps_files_of(&client.key) {
            true => self.session_of(&client.key, &client.person).await.map(Workspace::Session),
            false => self.own_workspace().await,
        };
        workspace.map_err(|error| self.machine.no_workspace(&error))
    }

    /// Whether a conversation finds its files again.
    pub(crate) fn keeps_files_of(&self, key: &Key) -> bool {
        self.server.has_sessions() && key.can_return()
    }

    /// Where a conversation of this person keeps its files.
    pub(crate) async fn session_of(
        &self,
        key: &Key,
        person: &Person,
    ) -> Result<Arc<SessionWorkspace>, JobError> {
        let (store, server) = (self.machine.store.clone(), self.server.name.to_string());
        let mut name = key.to_string();
        // Several people may have one address. What tells their processes apart tells their files.
        if let (true, Some(hash)) = (key.is_shared(), self.person_hash(person)) {
            name += &hex(&hash);
        }
        blocking(move || store.workspace(&server, &name)).await
    }

    /// A workspace for a child that belongs to no conversation.
    pub(crate) async fn own_workspace(&self) -> Result<Workspace, JobError> {
        let Machine { store, endings, writer, .. } = &self.machine;
        if self.server.mode.is_shared() {
            let made = Temporary::make(store, endings, writer).await;
            let made = made.map_err(|source| JobError::Io { what: "make a folder", source })?;
            return Ok(Workspace::Temporary(Arc::new(made)));
        }
        let made = OwnJob::make(store, endings, writer).await?;
        Ok(Workspace::Job(Arc::new(made)))
    }

    /// Starts a child in this workspace for a client whose call waits.
    pub(crate) async fn start_for(
        &self,
        workspace: Workspace,
        opening: &Opening,
        client: &Client,
        clock: &Clock,
    ) -> Result<ReadyChild, CallError> {
        // Kept until it was looked at: with its last user a job goes.
        let mut kept = workspace.clone();
        let mut started = self.start(opening, client, workspace, Audience::Client(clock)).await;
        // The workspace was removed or moved away meanwhile, which is no fault of the server.
        if started.is_err() && self.machine.is_gone(kept.directory().to_owned()).await? {
            let workspace = self.workspace_for(client).await?;
            kept = workspace.clone();
            started = self.start(opening, client, workspace, Audience::Client(clock)).await;
            // It is still being removed.
            if started.is_err() && self.machine.is_gone(kept.directory().to_owned()).await? {
                return Err(self.machine.no_workspace(&JobError::Unusable));
            }
        }
        drop(kept);
        let child = started.map_err(|error| self.tell(&error))?;
        self.begin(&child, client);
        Ok(child)
    }

    /// Makes a child ready for the calls of this client. The time it may run counts from now: what a
    /// spare has waited is not its client's.
    pub(crate) fn begin(&self, child: &ReadyChild, client: &Client) {
        child.begin_for(client);
        if let (Some(life), Some(process)) = (self.server.isolation.run_time, &child.process) {
            process.limit_life(life);
        }
    }

    /// Starts a child and opens it, ready for calls.
    pub(crate) async fn start(
        &self,
        opening: &Opening,
        client: &Client,
        workspace: Workspace,
        audience: Audience<'_>,
    ) -> Result<ReadyChild, StartError> {
        let began = now();
        let is_one_client = self.is_of_one_client(&client.key);
        let started = async {
            let unopened = self.spawn(&client.person, workspace, is_one_client).await?;
            self.open(unopened, opening, client, audience).await
        };
        self.counted(started.await, began)
    }

    /// Whether only one client will use a child that serves this conversation.
    pub(crate) fn is_of_one_client(&self, key: &Key) -> bool {
        match self.server.mode {
            Mode::Stateless => true,
            Mode::Stateful { .. } => !key.is_shared(),
            Mode::Shared { .. } => false,
        }
    }

    /// Counts a start that began then.
    pub(crate) fn counted(
        &self,
        started: Result<ReadyChild, StartError>,
        began: Instant,
    ) -> Result<ReadyChild, StartError> {
        match &started {
            Ok(_) => self.metrics.child_started(now().duration_since(began)),
            // It only does not speak this era.
            Err(StartError::Handshake { error: HandshakeError::Refused(_), .. }) => {}
            Err(_) => self.metrics.child_failed(),
        }
        started
    }

    /// Starts a process with what this person brings. Nothing is said to it yet.
    pub(crate) async fn spawn(
        &self,
        person: &Person,
        workspace: Workspace,
        is_one_client: bool,
    ) -> Result<Unopened, StartError> {
        self.stage.send_replace(StartStage::Starting);
        let no_workspace =
            |what: &str, error: std::io::Error| StartError::Workspace(format!("{what}: {error}"));
        let Machine { store, endings, writer, .. } = &self.machine;
        let temporary = Temporary::for_child_in(&workspace, store, endings, writer).await;
        let temporary = temporary.map_err(|error| no_workspace("no temporary files", error))?;
        let command = self.command(person, &workspace, temporary.directory())?;
        let given = workspace.hand_over(command.confinement.user, &temporary).await;
        given.map_err(|error| no_workspace("its user cannot have it", error))?;
        let is_walled = command.confinement.files.is_some();
        let mut process = self.machine.starter.start(&command).await?;
        // What a child of one call says is about that call; of others it cannot be known.
        let span = match self.server.mode {
            Mode::Stateless => Span::current(),
            Mode::Stateful { .. } | Mode::Shared { .. } => Span::none(),
        };
        self.log_complaints(&process, &span);
        let (input, output) = process.take_streams().expect("a new child still has its streams");
        let (options, pid) = (self.link_options(is_one_client, span), process.id());
        let words = ChildWords {
            complaints: process.complaints(),
            redactor: self.redactor_for(person),
            is_walled,
        };
        Ok(Unopened(ReadyChild {
            conversation: Conversation::new(
                Link::start(Carrier::Pipes(input, output), &options),
                &self.changed,
            ),
            pid,
            process: Some(process),
            words,
            has_waited: false,
            is_ending: AtomicBool::new(false),
            has_hung: AtomicBool::new(false),
            before: None,
            living: Some(Living::new(&self.population, pid)),
            workspace: Some(workspace),
            temporary: Some(temporary),
            state: None,
        }))
    }

    /// Opens a process that was started, so that it is ready for calls.
    pub(crate) async fn open(
        &self,
        Unopened(mut child): Unopened,
        opening: &Opening,
        client: &Client,
        audience: Audience<'_>,
    ) -> Result<ReadyChild, StartError> {
        child.conversation.era = opening.era();
        if let Opening::Legacy { revision, capabilities, info } = opening {
            child.link.hold_for(capabilities.clone(), client.era());
            let patience = match audience {
                // The clock of the call ends it sooner, if need be.
                Audience::Client(clock) => {
                    let (words, link) = (child.words.clone(), child.link.weak());
                    clock.listen_to(Box::new(move || {
                        let healed = link.upgrade().map(|link| link.explanation());
                        healed.unwrap_or_default() + &words.told()
                    }));
                    HANDSHAKE
                }
                Audience::Later => HANDSHAKE.min(self.server.timeout),
            };
            let deadline = now() + patience;
            self.stage.send_replace(StartStage::Greeting(patience));
            let shaken =
                shake_hands(&child.link, *revision, capabilities, info, deadline, &self.heals);
            match shaken.await {
                Ok(hello) => child.conversation.hello = Some(hello),
                Err(error) => return Err(failed_handshake(&child, error).await),
            }
            // It may ask for roots as soon as it is open, and its answer to a ping comes after that.
            if can_answer(capabilities, client.era(), method::LIST_ROOTS) {
                self.let_settle(&child).await;
            }
        }
        // What a server writes as it starts was made by no call.
        if self.server.files != FileLinks::Off {
            child.before = child.scan().await;
        }
        self.stage.send_replace(StartStage::Ready);
        Ok(child)
    }

    /// Waits until a server has read what it was told. One that does not answer pings is not asked
    /// again.
    pub(crate) async fn let_settle(&self, conversation: &Conversation) {
        if !self.ignores_pings.load(Ordering::Relaxed)
            && !conversation.is_responsive_within(SETTLE).await
        {
            self.ignores_pings.store(true, Ordering::Relaxed);
        }
    }

    /// Logs what the child writes to its standard error.
    fn log_complaints(&self, process: &Process, span: &Span) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (sender, mut lines) = tokio::sync::mpsc::channel(64);
        process.complaints().set_listener(sender);
        let (server, pid) = (self.server.name.to_string(), process.id());
        let logging = async move {
            while let Some(line) = lines.recv().await {
                tracing::debug!(%server, pid, line, "stderr");
            }
        };
        tokio::spawn(logging.instrument(span.clone()));
    }

    /// The error a client hears when no child could be started.
    pub fn tell(&self, error: &StartError) -> CallError {
        tracing::error!(server = %self.server.name, error = error as &dyn std::error::Error, "no child");
        if let StartError::Workspace(_) = error {
            // Which says nothing of the server.
            let so = "so the call was not made";
            return CallError::NoStorage(format!("{error}, {so}: {WHAT_TO_DO}"));
        }
        self.doubted.notify_one();
        CallError::ServerFailed(format!(
            "the server `{}` did not start: {}",
            self.server.name,
            self.told_of_start(&chain(error))
        ))
    }

    /// Why the server did not start, as it may be told.
    pub fn told_of_start(&self, why: &str) -> String {
        let program = self.server.find_program().err();
        let told = program.and_then(|error| self.machine.hearers.told_of_program(&error));
        told.unwrap_or_else(|| self.told(why))
    }

    /// What happened, as it may be told.
    pub(crate) fn told(&self, what: &str) -> String {
        self.machine.hearers.told(what, self.machine.store.path())
    }
}

pub(crate) async fn failed_handshake(child: &ReadyChild, error: HandshakeError) -> StartError {
    let how = match error {
        HandshakeError::Gone => {
            let exit = child.exit_within(Duration::from_secs(1)).await;
            exit.map(|exit| format!(": it {exit}")).unwrap_or_default()
        }
        _ => String::new(),
    };
    let how = match error {
        HandshakeError::Silent(_) => how + &child.told_of_silence(),
        _ => how,
    };
    let how = how + &child.link.explanation();
    StartError::Handshake { error, how, complaints: child.words.last() }
}

/// What the configuration tells the children of this server in confidence: what it takes from
/// variables, and variables it sets whose names say so.
pub fn secrets_of(server: &Server) -> impl Iterator<Item = &[u8]> {
    let named = server.env.iter().filter(|(name, _)| Redactor::is_secret(name));
    let named = named.flat_map(|(_, value)| value.texts());
    let values = server.env.iter().map(|(_, value)| value);
    let taken = server.args.iter().chain(values).flat_map(|template| template.variables());
    let shown = server.app.iter().filter_map(|app| match &app.token {
        Some(TokenSource::Value(token)) => Some(token.expose()),
        Some(TokenSource::File(_) | TokenSource::Command(_)) | None => None,
    });
    let headers = server.app.iter().flat_map(|app| &app.headers.typed);
    let headers = headers.filter_map(AppHeader::secret);
    named.chain(taken).map(str::as_bytes).chain(shown).chain(headers)
}

#[cfg(test)]
mod tests {
    use pontoon_wire::{Message, Revision, Slot};

    use super::*;
    use crate::back::child::in_memory::{InMemoryServers, ServerEnd};
    use crate::back::pair::{Pair, client, naming, result, serve_legacy};
    use crate::config::{AppHeaders, AppOptions, CONNECT_WAIT, Silence, TlsFiles};

    /// Starts a child for a client that has this long.
    async fn start(pair: &Pair, patience: Duration) -> Result<ReadyChild, CallError> {
        let (launcher, ada) = (&pair.back.launcher, client(Revision::V2025_11_25, "ada", "{}"));
        let workspace = launcher.workspace_for(&ada).await?;
        let opening = Opening::for_client(&ada, pontoon_wire::Era::Legacy);
        let clock = Clock::new(patience, now());
        launcher.start_for(workspace, &opening, &ada, &clock).await
    }

    #[test]
    fn of_headers_those_are_hidden_that_may_be_secrets() {
        let typed = ["X-Project: work", "X-Api-Key: sesame"].map(|it| it.parse().unwrap()).to_vec();
        let app = AppOptions {
            place: "ws://127.0.0.1:7400".parse().unwrap(),
            token: None,
            headers: AppHeaders { typed, file: None },
            tls: TlsFiles::default(),
            connect_wait: CONNECT_WAIT,
            silence: Silence::USUAL,
            close_codes: Vec::new(),
            over_http: false,
        };
        let server = Server::of_app("app".parse().unwrap(), app);
        assert_eq!(secrets_of(&server).collect::<Vec<_>>(), [b"sesame"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ready_child_works_in_a_folder_of_its_own_and_has_said_what_it_can() {
        let pair = Pair::new(naming(), |_| {});
        let child = start(&pair, HANDSHAKE).await.unwrap();
        assert!(child.directory().unwrap().is_dir());
        assert!(child.temporary_directory().unwrap().is_dir());
        assert_ne!(child.directory(), child.temporary_directory());
        assert!(child.capabilities().starts_with(b"{\"tools\""));
        assert!(child.is_fit());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_a_version_is_asked_for_one_it_names() {
        async fn serve(mut end: ServerEnd) {
            let line = end.next_line().await.unwrap();
            let first = Message::parse(line.as_bytes()).unwrap();
            let id = String::from_utf8_lossy(first.raw(Slot::Id).unwrap()).into_owned();
            end.say(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32602,\"message\":\"only 2025-03-26\"}}}}"
            ))
            .await;
            let line = end.next_line().await.unwrap();
            let second = Message::parse(line.as_bytes()).unwrap();
            assert!(line.contains("2025-03-26"), "{line}");
            let id = String::from_utf8_lossy(second.raw(Slot::Id).unwrap()).into_owned();
            end.say(&result(&id, "{\"protocolVersion\":\"2025-03-26\",\"capabilities\":{}}")).await;
            serve_legacy(end, |_, _| Vec::new()).await;
        }
        let pair = Pair::new(InMemoryServers::new(serve), |_| {});
        assert!(start(&pair, HANDSHAKE).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up_and_one_that_ends_is_told_as_ended() {
        let silent = InMemoryServers::new(|mut end: ServerEnd| async move {
            while end.next_line().await.is_some() {}
        });
        let began = tokio::time::Instant::now();
        let pair = Pair::new(silent, |_| {});
        let told = start(&pair, HANDSHAKE).await.unwrap_err().to_string();
        assert!(told.contains("did not answer `initialize` within 60 s"), "{told}");
        assert!(began.elapsed() >= HANDSHAKE);
        let pair = Pair::new(InMemoryServers::new(|_| async {}), |_| {});
        let told = start(&pair, HANDSHAKE).await.unwrap_err();
        assert!(told.to_string().contains("it exited with code 0"), "{told}");
    }
}

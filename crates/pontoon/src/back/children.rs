//! Children: which child process serves a call, and for how long it lives.
//!
//! A call takes a [`Lease`]. Dropping it stops the child, or hands it back to its client. This file
//! decides; the `supervise` crate acts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_supervise::{Child, SpawnError};
use pontoon_wire::{Era, Message, Revision, Rewrite, era, quoted};
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::Back;
use super::ahead::HeadStart;
use super::handshake::{HandshakeError, Opening, shake_hands};
use super::link::{Link, LinkOptions};
use super::live::{Counted, Live, Waits};
use super::place::{Place, Reserved, WHAT_TO_DO, blocking};
use super::pool::{Slot, Using};
use super::usage::Usage;
use crate::call::CallError;
use crate::client::{Client, Key, Person};
use crate::clock::Clock;
use crate::config::{Files, Mode, ProgramError};
use crate::jobs::{Claim, Held, JobError};
use crate::observe::metrics::Limit;

/// How long a child may take for its handshake, if the call itself has longer.
pub const HANDSHAKE: Duration = Duration::from_secs(60);

/// How long a replica that is about to end may still be asked for the state of a conversation: as
/// long as proxies may use their connections to it, and a second more.
const HANDOVER: Duration = Duration::from_secs(4);

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
    Place(String),
    /// It started, but the handshake failed.
    #[error("{error}{how}{}", said(.complaints))]
    Handshake {
        /// What failed.
        error: HandshakeError,
        /// How the process ended, if it did.
        how: String,
        /// The last lines of its standard error.
        complaints: Vec<String>,
    },
}

/// What a child is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A call.
    Call,
    /// A call that a dead child never read. Where one died unseen, others may have: no spare gets it.
    Again,
    /// A subscription: it gives the child nothing to do, so it waits for no call and no call for it.
    Listen,
}

impl Use {
    /// Whether it is told that the state of its conversation was lost. Client libraries open subscriptions
    /// by themselves, and the word would be lost with them.
    pub(super) fn hears_of_loss(self) -> bool {
        self != Self::Listen
    }
}

/// Who is there to be asked by a child.
#[derive(Debug, Clone, Copy)]
pub(super) enum Audience<'c> {
    /// The client whose call waits for it, with this clock.
    Client(&'c Clock),
    /// A client that is still to come.
    Later,
}

/// A process that was started, and to which nothing was said yet.
#[derive(Debug)]
pub(super) struct Unopened(pub(super) Live);

/// A child for one call.
#[derive(Debug)]
pub enum Lease {
    /// Started for this call alone, and stopped after it.
    Own(Box<Live>),
    /// Kept for the conversation.
    Kept(Using),
    /// Started for one call, and kept because it works on a task the client will ask about.
    Task(Arc<Live>),
}

impl std::ops::Deref for Lease {
    type Target = Live;

    fn deref(&self) -> &Live {
        match self {
            Self::Own(live) => live,
            Self::Kept(using) => &using.live,
            Self::Task(live) => live,
        }
    }
}

impl Lease {
    /// Says that its call waits for a person until the guard is dropped. Meanwhile the child gets no
    /// other client's calls: what it says could not be told apart.
    pub(super) fn park(&self) -> Waits<'_> {
        match self {
            Self::Kept(using) => using.park(),
            Self::Own(live) => live.park(),
            Self::Task(live) => live.park(),
        }
    }
}

impl Back {
    /// A child for this client, started if need be.
    pub async fn lease(
        &self,
        wanted_for: Use,
        client: &Client,
        child_era: Era,
        clock: &Clock,
    ) -> Result<Lease, CallError> {
        match self.server.mode {
            Mode::Stateful { .. } if client.key.can_return() => {
                self.lease_kept(wanted_for, client, child_era, clock).await
            }
            // A client that cannot be recognised again shares nothing, and keeps nothing.
            Mode::Stateless | Mode::Stateful { .. } => {
                self.check_stopping()?;
                let opening = opening_for(client, child_era);
                if wanted_for != Use::Again
                    && let Some(live) = self.take_spare(&opening)
                {
                    self.begin(&live, client);
                    return Ok(Lease::Own(Box::new(live)));
                }
                let ahead = match wanted_for {
                    Use::Again => None,
                    Use::Call | Use::Listen => self.take_ahead(client).await,
                };
                let opened = self.open_ahead(ahead, &opening, client, clock);
                if let Some(live) = Box::pin(opened).await {
                    return Ok(Lease::Own(Box::new(live)));
                }
                let live = Box::pin(self.start_for(&opening, client, clock)).await?;
                self.spares.encourage();
                Ok(Lease::Own(Box::new(live)))
            }
        }
    }

    /// Refuses another child while too many old ones will not end.
    pub(super) fn check_stopping(&self) -> Result<(), CallError> {
        let limit = self.around.max_stopping;
        if self.stopping.load(Ordering::Acquire) < limit {
            return Ok(());
        }
        self.around.metrics.refused(Limit::Leaving);
        let what = format!("{limit} processes of the server `{}` will not end", self.server.name);
        Err(CallError::Busy { what, retry_after_seconds: 10 })
    }

    /// Starts a child that will be kept for this client, and lets its session hear what it says.
    pub(super) async fn start_kept(
        &self,
        opening: &Opening,
        client: &Client,
        wanted_for: Use,
        slot: &Slot,
        clock: &Clock,
    ) -> Result<Live, CallError> {
        let ahead = self.take_ahead(client).await;
        let place = match ahead.as_ref().and_then(HeadStart::place) {
            Some(place) => place,
            None => self.place_for(client).await?,
        };
        let held = self.hold_state(&place, wanted_for, slot).await?;
        let reserved = Reserved::new(held, &self.around.endings);
        let mut live = match Box::pin(self.open_ahead(ahead, opening, client, clock)).await {
            Some(live) => live,
            None => Box::pin(self.start_at(place, opening, client, clock)).await?,
        };
        live.held = reserved.take();
        live.feed(client);
        Ok(live)
    }

    /// Says that a process keeps state in this place from now on. If one did that ended with its bridge,
    /// or that another replica has, a call fails with that; anything else goes on.
    async fn hold_state(
        &self,
        place: &Place,
        wanted_for: Use,
        slot: &Slot,
    ) -> Result<Option<Held>, CallError> {
        let Place::Space(space) = place else { return Ok(None) };
        let give_up = now() + HANDOVER;
        loop {
            let (space, is_patient) = (Arc::clone(space), now() < give_up);
            let claim = blocking(move || {
                let claim = space.hold(is_patient);
                claim.map_err(|source| JobError::Io { what: "open a session", source })
            });
            match claim.await.map_err(|error| self.around.no_place(&error))? {
                Claim::Held(held) => return Ok(Some(held)),
                Claim::Elsewhere => return Err(CallError::Stopping),
                Claim::Leaving => tokio::time::sleep(Duration::from_millis(50)).await,
                Claim::Lost => {
                    let how = "its bridge was restarted, or another replica has it";
                    if wanted_for.hears_of_loss() {
                        return Err(self.state_lost(how));
                    }
                    // Noted before anything else can fail.
                    slot.lose(how.to_owned());
                }
            }
        }
    }

    async fn start_for(
        &self,
        opening: &Opening,
        client: &Client,
        clock: &Clock,
    ) -> Result<Live, CallError> {
        let place = self.place_for(client).await?;
        self.start_at(place, opening, client, clock).await
    }

    async fn start_at(
        &self,
        place: Place,
        opening: &Opening,
        client: &Client,
        clock: &Clock,
    ) -> Result<Live, CallError> {
        // Kept until it was looked at: with its last user a job goes.
        let mut kept = place.clone();
        let mut started = self.start(opening, client, place, Audience::Client(clock)).await;
        // The place was removed or moved away meanwhile, which is no fault of the server.
        if started.is_err() && self.around.is_gone(kept.directory().to_owned()).await? {
            let place = self.place_for(client).await?;
            kept = place.clone();
            started = self.start(opening, client, place, Audience::Client(clock)).await;
            // It is still being removed.
            if started.is_err() && self.around.is_gone(kept.directory().to_owned()).await? {
                return Err(self.around.no_place(&JobError::Unusable));
            }
        }
        drop(kept);
        let live = started.map_err(|error| self.tell(&error))?;
        self.begin(&live, client);
        Ok(live)
    }

    /// Makes a child ready for the calls of this client. The time it may run counts from now: what a
    /// spare has waited is not its client's.
    pub(super) fn begin(&self, live: &Live, client: &Client) {
        live.begin_for(client);
        if let (Some(life), Some(child)) = (self.server.isolation.run_time, &live.child) {
            child.limit_life(life);
        }
    }

    /// Starts a child and opens it, ready for calls.
    pub(super) async fn start(
        &self,
        opening: &Opening,
        client: &Client,
        place: Place,
        audience: Audience<'_>,
    ) -> Result<Live, StartError> {
        let began = now();
        let is_one_client = !client.key.is_shared() || self.server.mode == Mode::Stateless;
        let started = async {
            let unopened = self.spawn(&client.person, place, is_one_client).await?;
            self.open(unopened, opening, client, audience).await
        };
        self.counted(started.await, began)
    }

    /// Counts a start that began then.
    pub(super) fn counted(
        &self,
        started: Result<Live, StartError>,
        began: Instant,
    ) -> Result<Live, StartError> {
        match &started {
            Ok(_) => self.metrics.child_started(began.elapsed()),
            // It only does not speak this era.
            Err(StartError::Handshake { error: HandshakeError::Refused(_), .. }) => {}
            Err(_) => self.metrics.child_failed(),
        }
        started
    }

    /// Starts a process with what this person brings. Nothing is said to it yet.
    pub(super) async fn spawn(
        &self,
        person: &Person,
        place: Place,
        is_one_client: bool,
    ) -> Result<Unopened, StartError> {
        let no_place =
            |what: &str, error: std::io::Error| StartError::Place(format!("{what}: {error}"));
        let temporary = self.around.new_temporary().await;
        let temporary = temporary.map_err(|error| no_place("no temporary files", error))?;
        let command = self.command(person, &place, temporary.directory())?;
        let given = place.hand_over(command.confinement.user, &temporary).await;
        given.map_err(|error| no_place("its user cannot have it", error))?;
        let is_walled = command.confinement.files.is_some();
        let mut child = self.around.spawner.spawn(&command).await?;
        // Whatever a child of one call says is about that call; of others it cannot be known.
        let span = match self.server.mode {
            Mode::Stateless => Span::current(),
            Mode::Stateful { .. } => Span::none(),
        };
        self.log_complaints(&child, &span);
        let (input, output) = child.take_streams().expect("a new child still has its streams");
        let options = LinkOptions {
            heal: self.server.heal,
            max_message: self.around.max_message,
            held: Arc::clone(&self.around.held),
            one_client: is_one_client,
            heals: Arc::clone(&self.heals),
            span,
        };
        let complaints = child.complaints();
        Ok(Unopened(Live {
            link: Link::start(input, output, &options),
            // Until it is opened, this means nothing.
            era: Era::Modern,
            hello: None,
            pid: child.id(),
            child: Some(child),
            heals: Arc::clone(&self.heals),
            metrics: Arc::clone(&self.metrics),
            redactor: self.redactor_for(person),
            endings: self.around.endings.clone(),
            living: Some(Counted::new(&self.living)),
            stopping: Arc::clone(&self.stopping),
            ends_by_itself: Arc::clone(&self.ends_by_itself),
            is_walled,
            parked: AtomicUsize::new(0),
            _watching: None,
            complaints,
            feeding: Mutex::new(None),
            log_level: Mutex::new(None),
            usage: Usage::new(now()),
            has_waited: false,
            is_told: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            before: None,
            place: Some(place),
            temporary: Some(temporary),
            held: None,
        }))
    }

    /// Opens a process that was started, so that it is ready for calls.
    pub(super) async fn open(
        &self,
        Unopened(mut live): Unopened,
        opening: &Opening,
        client: &Client,
        audience: Audience<'_>,
    ) -> Result<Live, StartError> {
        live.era = opening.era();
        if let Opening::Legacy { revision, capabilities, info } = opening {
            live.link.hold_for(capabilities.clone(), client.era());
            let patience = match audience {
                // The clock of the call ends it sooner, if need be.
                Audience::Client(clock) => {
                    let words = live.words();
                    clock.listen_to(Box::new(move || said(&words.last())));
                    HANDSHAKE
                }
                Audience::Later => HANDSHAKE.min(self.server.timeout),
            };
            let deadline = now() + patience;
            let shaken =
                shake_hands(&live.link, *revision, capabilities, info, deadline, &self.heals).await;
            match shaken {
                Ok(hello) => live.hello = Some(hello),
                Err(error) => return Err(failed_handshake(&live, error).await),
            }
            self.hear_first_questions(&live, opening, client.era()).await;
        }
        self.watch_lists(&mut live);
        // What a server writes as it starts was made by no call.
        if self.server.files != Files::Off {
            live.before = live.scan().await;
        }
        Ok(live)
    }

    /// Lets the catalogue hear when the child says that one of its lists changed.
    pub(super) fn watch_lists(&self, live: &mut Live) {
        let changed = Arc::clone(&self.changed);
        live._watching = Some(live.link.listen(Box::new(move |note| {
            if note.method().ends_with("/list_changed") {
                changed.note(now());
            }
        })));
    }

    /// Logs what the child writes to its standard error.
    fn log_complaints(&self, child: &Child, span: &Span) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (sender, mut lines) = tokio::sync::mpsc::channel(64);
        child.complaints().set_listener(sender);
        let (server, pid) = (self.server.name.to_string(), child.id());
        let logging = async move {
            while let Some(line) = lines.recv().await {
                tracing::debug!(%server, pid, line, "stderr");
            }
        };
        tokio::spawn(logging.instrument(span.clone()));
    }

    /// The error a client hears when no child could be started.
    pub fn tell(&self, error: &StartError) -> CallError {
        tracing::warn!(server = %self.server.name, error = error as &dyn std::error::Error, "no child");
        if let StartError::Place(_) = error {
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
}

pub(super) async fn failed_handshake(live: &Live, error: HandshakeError) -> StartError {
    let how = match error {
        HandshakeError::Gone => {
            let exit = live.exit_within(Duration::from_secs(1)).await;
            exit.map(|exit| format!(": it {exit}")).unwrap_or_default()
        }
        _ => String::new(),
    };
    StartError::Handshake { error, how, complaints: live.last_words() }
}

/// How a child is opened for this client.
pub(super) fn opening_for(client: &Client, child_era: Era) -> Opening {
    match child_era {
        Era::Modern => Opening::Modern,
        Era::Legacy => Opening::Legacy {
            revision: match client.era() {
                Era::Legacy => client.revision,
                Era::Modern => Revision::NEWEST_LEGACY,
            },
            capabilities: client.capabilities.clone(),
            // Modern clients of one conversation share a child, whatever they call themselves.
            info: match client.era() {
                Era::Legacy => client.info.clone(),
                Era::Modern => own_info(),
            },
        },
    }
}

/// The client of a child that is started for nobody in particular.
pub(super) fn nobody(opening: &Opening) -> Client {
    let (revision, capabilities) = match opening {
        Opening::Legacy { revision, capabilities, .. } => (*revision, capabilities.clone()),
        Opening::Modern => (Revision::NEWEST_MODERN, Bytes::from_static(b"{}")),
    };
    Client {
        revision,
        capabilities,
        info: own_info(),
        log_level: None,
        key: Key::Once(Uuid::nil()),
        person: Person::local(),
        feed: None,
        subscriptions: Vec::new(),
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

pub(super) fn said(complaints: &[String]) -> String {
    match complaints {
        [] => String::new(),
        lines => format!("; its last words: {}", lines.join(" | ")),
    }
}

/// A request of the bridge's own, without parameters.
pub fn own_request(method: &str) -> Message {
    own_request_with(method, "{}")
}

/// A request of the bridge's own; `params` is a JSON object.
pub fn own_request_with(method: &str, params: &str) -> Message {
    let method = quoted(method);
    Message::own(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":{method},\"params\":{params}}}"
    ))
}

/// The same request, described as the modern era wants it.
pub fn modern_request(request: Message) -> Rewrite {
    let client = era::ClientFacts {
        capabilities: Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}"),
        info: own_info(),
        log_level: None,
    };
    era::to_modern_request(request, &client)
}

/// How the bridge names itself to servers.
pub fn own_info() -> Bytes {
    Bytes::from_static(
        concat!("{\"name\":\"pontoon\",\"version\":\"", env!("CARGO_PKG_VERSION"), "\"}")
            .as_bytes(),
    )
}

/// The time; idle clocks and deadlines begin here.
pub fn now() -> Instant {
    Instant::now()
}

//! The right side: calls become bytes to servers.
//!
//! A [`Back`] is one server of the configuration. The rooms, each of which may name those behind it and none before:
//! `call` takes one call to its answer, `keep` says which child it gets, `child` starts that, `conversation` moves
//! the frames. A back stands between `call` and `keep`.

mod aside;
pub mod call;
pub mod child;
pub mod conversation;
pub mod keep;
pub(crate) mod outputs;
#[cfg(test)]
pub(crate) mod pair;
pub mod remote;
pub(crate) mod shown_tools;
mod surroundings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pontoon_wire::Era;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::child::isolation::Impossible;
use self::child::launcher::{Launcher, StartError};
use self::child::ready::ReadyChild;
use self::child::stage::StartStage;
use self::conversation::list_changes::ListChanges;
use self::keep::Keep;
use self::keep::kept_child::KeptChild;
use self::keep::suspended::MAX_SUSPENDED;
use self::outputs::Outputs;
use self::remote::live_app::LiveApp;
use crate::client::{Client, Key, Person};
use crate::config::Server;
use crate::observe::heals::HealLog;
use crate::observe::metrics::ServerMetrics;
use crate::observe::spans::Tracer;
use crate::permits::Permits;

pub use surroundings::{Surroundings, open_store, start_limit};

/// How long is waited for clients that are about to be served.
const QUIET: Duration = Duration::from_secs(5);

/// One server, and the children that serve it.
#[derive(Debug)]
pub struct Back {
    /// The server's entry in the configuration.
    pub server: Arc<Server>,
    /// What was healed.
    pub heals: Arc<HealLog>,
    /// What its tools promise to give back.
    pub(crate) outputs: Arc<Outputs>,
    /// What is counted of this server.
    pub metrics: Arc<ServerMetrics>,
    /// Fires when the server is no longer served so: subscriptions end then, calls do not.
    pub stop: CancellationToken,
    /// The calls that a process may have at once which is everybody's, with a fair share for each client.
    pub shared_calls: Arc<Permits>,
    /// Fires when the bridge stops: calls that wait for a person end then.
    closing: CancellationToken,
    launcher: Arc<Launcher>,
    keep: Arc<Keep>,
    around: Surroundings,
    /// The places for calls that wait for a person.
    waiting: Arc<Semaphore>,
    running: AtomicUsize,
    /// Whether a child that is kept for a client ever listed its tools itself.
    lists_own_tools: AtomicBool,
    /// Told when a call ends.
    call_ended: Notify,
}

impl Back {
    /// The back of `server`, with no child yet. `closing` fires when the bridge stops.
    pub fn new(server: Arc<Server>, around: Surroundings, closing: CancellationToken) -> Self {
        let launcher = Arc::new(Launcher::new(Arc::clone(&server), around.machine.clone()));
        Self {
            heals: Arc::clone(&launcher.heals),
            outputs: Arc::default(),
            metrics: Arc::clone(&launcher.metrics),
            keep: Arc::new(Keep::new(Arc::clone(&launcher), &around.keep)),
            shared_calls: Permits::new(server.max_in_flight),
            launcher,
            server,
            around,
            waiting: Arc::new(Semaphore::new(MAX_SUSPENDED)),
            stop: closing.child_token(),
            closing,
            running: AtomicUsize::new(0),
            lists_own_tools: AtomicBool::new(false),
            call_ended: Notify::new(),
        }
    }

    /// What makes the spans of its calls, if they are traced.
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.around.machine.tracer.as_ref()
    }

    /// How many calls are under way.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many children live, of every kind.
    pub fn living(&self) -> usize {
        self.launcher.living()
    }

    /// How far the last start of a child is.
    pub fn stage(&self) -> watch::Receiver<StartStage> {
        self.launcher.stage.subscribe()
    }

    /// How many spares are ready.
    pub fn spares(&self) -> usize {
        self.keep.spares.ready()
    }

    /// Whether its children can be kept apart as its configuration asks.
    ///
    /// # Errors
    ///
    /// What this system cannot give.
    pub fn check_isolation(&self) -> Result<(), Impossible> {
        self.launcher.check_isolation()
    }

    /// The isolation of its children, in a word. An application is no child.
    pub fn isolation(&self) -> &'static str {
        match self.app() {
            Some(_) => "none",
            None => self.launcher.isolation(),
        }
    }

    /// What its children say of their lists.
    pub fn changed(&self) -> &Arc<ListChanges> {
        &self.launcher.changed
    }

    /// Waits until a child did not start, or ended in a call: perhaps the server is broken. Cancel safe: what
    /// happened while nothing waited is heard by the next.
    pub async fn doubted(&self) {
        self.launcher.doubted.notified().await;
    }

    /// Why the server did not start, as it may be told.
    pub fn told_of_start(&self, why: &str) -> String {
        self.launcher.told_of_start(why)
    }

    /// A hash of what the server's processes get from the person who calls; `None` if nothing.
    pub fn person_hash(&self, person: &Person) -> Option<[u8; 32]> {
        self.launcher.person_hash(person)
    }

    /// Starts a child to learn what the server offers this person. Nothing is said to it yet.
    pub async fn start_to_learn(&self, person: &Person) -> Result<ReadyChild, StartError> {
        self.launcher.start_to_learn(person).await
    }

    /// Shakes hands with such a child, for no client.
    pub async fn greet(
        &self,
        child: &mut ReadyChild,
        patience: Duration,
    ) -> Result<(), StartError> {
        self.launcher.greet(child, patience).await
    }

    /// Whether a server that says nothing may take `Content-Length` frames, as far as is known.
    pub(crate) fn may_take_frames(&self) -> bool {
        self.launcher.may_take_frames()
    }

    /// Whether it turned out to take nothing but such frames.
    pub(crate) fn takes_frames(&self) -> bool {
        self.launcher.takes_frames()
    }

    /// Notes whether it does, as far as is known.
    pub(crate) fn note_frames(&self, takes_frames: bool) {
        self.launcher.note_frames(takes_frames);
    }

    /// Shakes hands with such a child in `Content-Length` frames. Whether it answered so.
    pub(crate) async fn greet_in_frames(&self, child: &mut ReadyChild) -> bool {
        self.launcher.greet_in_frames(child).await
    }

    /// Starts a child for a client that waits until the server is known.
    pub fn start_ahead(&self, key: &Key, person: &Arc<Person>) {
        let key = if self.server.mode.is_shared() { &Key::Everyone } else { key };
        self.keep.head_starts.start(key, person);
    }

    /// Says that the server is known now, or that it cannot be, so that the clients that waited go on.
    pub fn settle_ahead(&self) {
        self.keep.head_starts.settle();
    }

    /// The same of one person, where what a server offers differs by that.
    pub fn settle_ahead_of(&self, person: &Person) {
        self.keep.head_starts.settle_of(person);
    }

    /// Waits until the calls that are over were told.
    pub async fn until_told(&self) {
        self.around.machine.writer.flush().await;
    }

    /// Waits until the clients that waited for the server have used what was started for them and no call is
    /// under way, for some seconds at most.
    pub async fn until_quiet(&self) {
        let quiet = async {
            loop {
                let ended = self.call_ended.notified();
                if self.keep.head_starts.is_idle() && self.running() == 0 {
                    return;
                }
                ended.await;
            }
        };
        drop(tokio::time::timeout(QUIET, quiet).await);
    }

    /// Starts what calls will need: the process that is everybody's, or spares, which are kept ready until the server is
    /// no longer served so. `era` is the one that most calls will want.
    pub async fn keep_ready(&self, era: Era) {
        match self.server.mode.is_shared() {
            true => self.keep.start_shared(era).await,
            false => Arc::clone(&self.keep.spares).keep_ready(era, self.stop.clone()).await,
        }
    }

    /// The child kept for this client, if it runs.
    pub fn kept(&self, client: &Client, child_era: Era) -> Option<Arc<KeptChild>> {
        self.keep.kept.find(client, child_era)
    }

    /// The application that the server is, if it is one.
    pub fn app(&self) -> Option<&Arc<LiveApp>> {
        self.keep.app.as_ref()
    }

    /// Says which client the server is used by: an application is opened for that one, unless it is everybody's.
    pub fn meet(&self, client: &Arc<Client>) {
        if let Some(app) = self.app().filter(|_| !self.server.mode.is_shared()) {
            app.meet(client);
        }
    }

    /// Says that a client has left which was met.
    pub fn part(&self, person: &Arc<Person>) {
        if let Some(app) = self.app() {
            app.part(person);
        }
    }

    /// Whether another client of an application is subscribed to this resource.
    pub fn is_wanted_by_others(&self, client: &Client, uri: &str) -> bool {
        let connection = self.app().and_then(|app| app.connection());
        connection.is_some_and(|connection| connection.is_wanted_by_others(client, uri))
    }

    /// The kept children, each with its conversation's name.
    pub fn kept_children(&self) -> Vec<(String, Arc<KeptChild>)> {
        self.keep.kept.all()
    }

    /// Stops the children that a legacy session kept. A chat's child is not the session's.
    pub fn end_session(&self, id: &str) {
        self.keep.kept.end_session(id);
    }

    /// Stops the children that were idle for too long.
    pub fn stop_idle(&self) {
        self.keep.kept.stop_idle();
    }

    /// Lets go of what waited too long for a person, and of the places of what has ended.
    pub fn sweep(&self) {
        self.keep.sweep();
    }

    /// Lets go of everything that is kept.
    pub fn drain(&self) {
        self.keep.end();
    }
}

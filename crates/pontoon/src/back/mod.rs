//! The right side: calls become bytes to servers.
//!
//! A [`Back`] is one server of the configuration with the children that serve it. It takes calls by
//! [`exchange`]; `children` starts what serves one, `pool` keeps what is kept, `spares` and `ahead` what waits
//! to be used; `record` and `answer` see to the files; `link` moves the bytes.

mod ahead;
pub mod answer;
pub mod budget;
pub mod children;
mod command;
pub mod exchange;
pub mod handshake;
mod held;
mod hidden;
mod incoming;
pub mod isolation;
pub mod link;
pub mod list_changes;
pub mod listen;
pub mod live;
pub mod mailbox;
mod mentions;
pub mod parking;
pub mod place;
pub mod pool;
mod pool_key;
mod probe;
mod questions;
mod reader;
mod record;
pub mod spares;
mod told;
pub mod usage;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pontoon_supervise::Spawner;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::heal::Heal;
use pontoon_wire::{Message, Slot};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use told::Hearers;

use crate::config::{Server, proxy_secrets};
use crate::held_bytes::HeldBytes;
use crate::ids::Ids;
use crate::jobs::{Links, Store, Writer};
use crate::observe::heals::HealLog;
use crate::observe::metrics::{Metrics, ServerMetrics};
use crate::observe::redact::Redactor;

/// What the backs of all servers share.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Starts every child.
    pub spawner: Spawner,
    /// Where jobs and workspaces are.
    pub store: Store,
    /// Writes the records of jobs.
    pub writer: Writer,
    /// The addresses of files.
    pub links: Arc<Links>,
    /// Makes the states of calls that wait.
    pub ids: Arc<Ids>,
    /// How many children may be kept in all.
    pub budget: budget::Budget,
    /// How much memory spares may take in all.
    pub warm_memory: Arc<spares::WarmMemory>,
    /// How many spares may start at once.
    pub spare_starts: Arc<Semaphore>,
    /// Children on their way out, and what they leave to their jobs.
    pub endings: TaskTracker,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// So many children of a server may still be on their way out when another is started.
    pub max_stopping: usize,
    /// The largest message of a server.
    pub max_message: usize,
    /// The bytes that are held for clients.
    pub held: Arc<HeldBytes>,
    /// How long a call may wait for its turn.
    pub queue_wait: Duration,
    /// What links to files begin with.
    pub base_url: Arc<str>,
    /// How long files are kept.
    pub file_expiry: Duration,
    /// Who hears of failures.
    pub hearers: Hearers,
    /// What is our own: jobs, state, logs and the configuration, by their real paths.
    pub private: Arc<[PathBuf]>,
}

/// One server, and the children that serve it.
#[derive(Debug)]
pub struct Back {
    /// The server's entry in the configuration.
    pub server: Arc<Server>,
    /// What was healed.
    pub heals: Arc<HealLog>,
    /// What is counted of this server.
    pub metrics: Arc<ServerMetrics>,
    /// Children that were started ahead.
    pub spares: spares::Spares,
    /// Those of clients that wait until the server is known.
    ahead: ahead::HeadStarts,
    around: Surroundings,
    walls: Arc<isolation::Walls>,
    /// Those of a program that was found elsewhere later.
    moved_walls: Mutex<Option<(PathBuf, Arc<isolation::Walls>)>>,
    environment: Vec<(OsString, OsString)>,
    /// Keeps what its children are told in confidence out of what they say last.
    redactor: Arc<Redactor>,
    pool: Arc<pool::Pool>,
    parking: parking::Parking,
    /// Children that live, of every kind.
    living: Arc<AtomicUsize>,
    /// Those of them that are on their way out.
    stopping: Arc<AtomicUsize>,
    /// Whether a child has ever ended when its input did.
    ends_by_itself: Arc<AtomicBool>,
    /// Calls that wait for a person, whoever asks them.
    waiting: Arc<Semaphore>,
    /// What its children say of their lists.
    pub changed: Arc<list_changes::ListChanges>,
    /// Told when a child did not start, or ended in a call: perhaps the server is broken.
    pub doubted: Notify,
    /// Fires when the server is no longer served so: subscriptions end then, calls do not.
    pub stop: CancellationToken,
    /// Fires when the bridge stops: calls that wait for a person end then.
    closing: CancellationToken,
    running: AtomicUsize,
    /// Told when a call ends.
    call_ended: Notify,
    /// Whether a child of this server was asked for a sign of life and gave none.
    ignores_pings: AtomicBool,
}

impl Back {
    /// The back of `server`, with no child yet. `closing` fires when the bridge stops.
    pub fn new(server: Arc<Server>, around: Surroundings, closing: CancellationToken) -> Self {
        let environment: Vec<_> = std::env::vars_os().collect();
        let proxies = proxy_secrets(&environment);
        let secrets = secrets_of(&server).chain(proxies.iter().map(String::as_bytes));
        Self {
            redactor: Arc::new(Redactor::new(secrets)),
            environment,
            heals: Arc::new(HealLog::new(server.name.as_str())),
            metrics: around.metrics.server(server.name.as_str()),
            spares: spares::Spares::new(
                Arc::clone(&around.warm_memory),
                Arc::clone(&around.spare_starts),
            ),
            ahead: ahead::HeadStarts::default(),
            walls: Arc::new(isolation::Walls::new(
                &server,
                around.spawner.support(),
                &around.private,
            )),
            moved_walls: Mutex::default(),
            pool: pool::Pool::new(Arc::clone(&server), around.budget.clone()),
            parking: parking::Parking::new(Arc::clone(&around.ids), server.name.clone()),
            server,
            around,
            living: Arc::default(),
            stopping: Arc::default(),
            ends_by_itself: Arc::default(),
            waiting: Arc::new(Semaphore::new(parking::MAX_PARKED)),
            changed: Arc::default(),
            doubted: Notify::new(),
            stop: closing.child_token(),
            closing,
            running: AtomicUsize::new(0),
            call_ended: Notify::new(),
            ignores_pings: AtomicBool::new(false),
        }
    }

    /// How many calls are under way.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many children live, of every kind.
    pub fn living(&self) -> usize {
        self.living.load(Ordering::Relaxed)
    }

    /// Whether its children can be kept apart as its configuration asks.
    ///
    /// # Errors
    ///
    /// What this system cannot give.
    pub fn check_isolation(&self) -> Result<(), isolation::Impossible> {
        self.walls.check(&self.server, self.around.spawner.support())
    }

    /// What a child that runs this program is kept from.
    fn walls_for(&self, program: &Path) -> Arc<isolation::Walls> {
        if self.server.program.as_deref() == Ok(program) {
            return Arc::clone(&self.walls);
        }
        let mut moved = self.moved_walls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, walls)) = &*moved
            && known == program
        {
            return Arc::clone(walls);
        }
        let server = Server { program: Ok(program.to_owned()), ..Server::clone(&self.server) };
        let (support, private) = (self.around.spawner.support(), &self.around.private);
        let walls = Arc::new(isolation::Walls::new(&server, support, private));
        *moved = Some((program.to_owned(), Arc::clone(&walls)));
        walls
    }

    /// The isolation of its children, in a word.
    pub fn isolation(&self) -> &'static str {
        self.walls.reached(self.around.spawner.support())
    }

    /// Refuses a question that this client cannot be asked (H22).
    fn refuse(&self, link: &link::Link, question: &Message, why: &str) {
        self.heals.note(Heal::H22);
        refuse(link, question, why);
    }
}

/// What the configuration tells the children of this server in confidence: what it takes from
/// variables, and variables it sets whose names say so.
pub fn secrets_of(server: &Server) -> impl Iterator<Item = &[u8]> {
    let named = server.env.iter().filter(|(name, _)| Redactor::is_secret(name));
    let named = named.flat_map(|(_, value)| value.texts());
    let values = server.env.iter().map(|(_, value)| value);
    let taken = server.args.iter().chain(values).flat_map(|template| template.variables());
    named.chain(taken).map(str::as_bytes)
}

/// Answers a question of the server's with an error.
pub fn refuse(link: &link::Link, question: &Message, why: &str) {
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or(b"null")).into_owned();
    link.say(Bytes::from(ErrorObject::new(code::METHOD_NOT_FOUND, why).answer(&id)));
}

//! The right side: calls become bytes to servers.
//!
//! A [`Back`] is one server of the configuration with the children that serve it. It takes calls by
//! [`exchange`]; `children` decides which child serves one and for how long it lives; `link` moves
//! the bytes.

pub mod children;
pub mod exchange;
pub mod handshake;
pub mod link;
pub mod listen;
pub mod live;
pub mod mailbox;
pub mod parking;
mod questions;
mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pontoon_supervise::Spawner;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::heal::Heal;
use pontoon_wire::{Message, Slot};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::config::Server;
use crate::observe::heals::HealLog;

/// One server, and the children that serve it.
#[derive(Debug)]
pub struct Back {
    /// The server's entry in the configuration.
    pub server: Arc<Server>,
    /// What was healed.
    pub heals: Arc<HealLog>,
    spawner: Spawner,
    environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    pool: children::Pool,
    parking: parking::Parking,
    max_message: usize,
    /// Children on their way out.
    stopping: Arc<AtomicUsize>,
    /// Calls that wait for a person, whoever asks them.
    waiting: Arc<Semaphore>,
    /// Told when a child says that one of its lists changed.
    pub changed: Arc<Notify>,
    /// Fires when the bridge stops: subscriptions end then.
    pub stop: CancellationToken,
    running: AtomicUsize,
}

impl Back {
    /// The back of `server`, with no child yet.
    pub fn new(
        server: Arc<Server>,
        spawner: Spawner,
        max_message: usize,
        stop: CancellationToken,
    ) -> Self {
        Self {
            heals: Arc::new(HealLog::new(server.name.as_str())),
            environment: server.environment_for_child(std::env::vars_os()),
            server,
            spawner,
            pool: children::Pool::default(),
            parking: parking::Parking::default(),
            max_message,
            stopping: Arc::default(),
            waiting: Arc::new(Semaphore::new(parking::MAX_PARKED)),
            changed: Arc::default(),
            stop,
            running: AtomicUsize::new(0),
        }
    }

    /// How many calls are under way.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Refuses a question that this client cannot be asked (H22).
    fn refuse(&self, link: &link::Link, question: &Message, why: &str) {
        self.heals.note(Heal::H22);
        refuse(link, question, why);
    }
}

/// Answers a question of the server's with an error.
pub fn refuse(link: &link::Link, question: &Message, why: &str) {
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or(b"null")).into_owned();
    link.say(Bytes::from(ErrorObject::new(code::METHOD_NOT_FOUND, why).answer(&id)));
}

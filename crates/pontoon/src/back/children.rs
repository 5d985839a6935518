//! Children: which child process serves a call, and for how long it lives.
//!
//! A call takes a [`Lease`]. Dropping it stops the child, or hands it back to its client. This file
//! decides; the `supervise` crate acts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pontoon_supervise::{Child, Command, Limits, SpawnError};
use pontoon_wire::heal::Heal;
use pontoon_wire::{Era, Message, Revision, Rewrite, era, quoted};

use super::Back;
use super::handshake::{HandshakeError, Opening, shake_hands};
use super::link::{Link, LinkOptions};
use super::live::Live;
use crate::call::{CallError, Client, Key};
use crate::config::{Mode, ProgramError};

/// How long a child may take for its handshake, if the call itself has longer.
const HANDSHAKE: Duration = Duration::from_secs(60);

/// Up to this many children are kept for clients of one server.
const MAX_KEPT: usize = 100;

/// Up to this many children of one server may still be on their way out when another is started.
const MAX_STOPPING: usize = 64;

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The operating system could not start it.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
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

/// A child for one call.
#[derive(Debug)]
pub enum Lease {
    /// Started for this call alone, and stopped after it.
    Own(Box<Live>),
    /// Kept for the client.
    Kept(Arc<Live>, Using),
    /// Started for one call, and kept because it works on a task the client will ask about.
    Task(Arc<Live>),
}

impl std::ops::Deref for Lease {
    type Target = Live;

    fn deref(&self) -> &Live {
        match self {
            Self::Own(live) => live,
            Self::Kept(live, _) | Self::Task(live) => live,
        }
    }
}

/// The children that are kept for clients.
#[derive(Debug, Default)]
pub struct Pool {
    slots: Mutex<HashMap<PoolKey, Arc<PoolSlot>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    key: Key,
    opening: Opening,
}

#[derive(Debug)]
struct PoolSlot {
    /// Held while a child starts, so that a client's first two calls start only one.
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
    in_use: AtomicUsize,
    idle_since: Mutex<Instant>,
}

/// Says that a kept child is in use; the idle clock starts when it is dropped.
#[derive(Debug)]
pub struct Using {
    slot: Arc<PoolSlot>,
}

impl Drop for Using {
    fn drop(&mut self) {
        *self.slot.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = now();
        self.slot.in_use.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Back {
    /// A child for a call of this client, started if need be.
    pub async fn lease(&self, client: &Client, child_era: Era) -> Result<Lease, CallError> {
        let opening = opening_for(client, child_era);
        match self.server.mode {
            Mode::Stateless if self.stopping.load(Ordering::Acquire) >= MAX_STOPPING => {
                let what = format!(
                    "{MAX_STOPPING} processes of the server `{}` will not end",
                    self.server.name
                );
                Err(CallError::Busy { what, retry_after_seconds: 10 })
            }
            Mode::Stateless => {
                let live = Box::pin(self.start(&opening, client))
                    .await
                    .map_err(|error| self.tell(&error))?;
                Ok(Lease::Own(Box::new(live)))
            }
            Mode::Stateful { .. } => self.lease_kept(client, opening).await,
        }
    }

    async fn lease_kept(&self, client: &Client, opening: Opening) -> Result<Lease, CallError> {
        let slot = self.slot(PoolKey { key: client.key.clone(), opening: opening.clone() })?;
        let using = Using { slot: Arc::clone(&slot) };
        let mut live = slot.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| live.is_fit() && !live.is_waiting(client)) {
            return Ok(Lease::Kept(Arc::clone(live), using));
        }
        if live.take().is_some_and(|live| !live.is_fit()) {
            self.heals.note(Heal::H28);
            tracing::info!(server = %self.server.name, "a child had ended; starting another");
        }
        let started =
            Box::pin(self.start(&opening, client)).await.map_err(|error| self.tell(&error))?;
        let started = Arc::new(started);
        *live = Some(Arc::clone(&started));
        Ok(Lease::Kept(started, using))
    }

    /// The client's slot, marked as in use.
    fn slot(&self, key: PoolKey) -> Result<Arc<PoolSlot>, CallError> {
        let mut slots = self.pool.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if !slots.contains_key(&key) && slots.len() >= MAX_KEPT && !evict_idle(&mut slots) {
            let what =
                format!("all {MAX_KEPT} processes of the server `{}` are in use", self.server.name);
            return Err(CallError::Busy { what, retry_after_seconds: 60 });
        }
        let slot = slots.entry(key).or_insert_with(|| {
            Arc::new(PoolSlot {
                live: tokio::sync::Mutex::new(None),
                in_use: AtomicUsize::new(0),
                idle_since: Mutex::new(now()),
            })
        });
        slot.in_use.fetch_add(1, Ordering::AcqRel);
        Ok(Arc::clone(slot))
    }

    /// The child kept for this client, if it runs.
    pub fn kept(&self, client: &Client, child_era: Era) -> Option<Arc<Live>> {
        let key = PoolKey { key: client.key.clone(), opening: opening_for(client, child_era) };
        let slots = self.pool.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let live = slots.get(&key)?.live.try_lock().ok()?;
        live.as_ref().filter(|live| live.is_fit()).cloned()
    }

    /// Lets go of the children that match, so that each stops once its last call has ended.
    fn let_go(&self, matches: impl Fn(&PoolKey, &PoolSlot) -> bool) -> usize {
        let mut slots = self.pool.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let before = slots.len();
        slots.retain(|key, slot| !matches(key, slot));
        before - slots.len()
    }

    /// Stops the children that a legacy session kept.
    pub fn end_session(&self, id: &str) {
        self.let_go(|key, _| matches!(&key.key, Key::Session(session) if session.as_ref() == id));
    }

    /// Stops the children that were idle for too long.
    pub fn stop_idle(&self) {
        let Mode::Stateful { idle } = self.server.mode else { return };
        let now = now();
        let stopped = self.let_go(|_, slot| {
            let since = *slot.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
            slot.in_use.load(Ordering::Acquire) == 0 && now.saturating_duration_since(since) >= idle
        });
        if stopped > 0 {
            tracing::info!(server = %self.server.name, stopped, "stopped idle children");
        }
    }

    /// Stops every kept child.
    pub fn end_all(&self) {
        self.let_go(|_, _| true);
    }

    /// Starts a child and opens it, ready for calls.
    pub async fn start(&self, opening: &Opening, client: &Client) -> Result<Live, StartError> {
        let command = Command {
            program: self.server.program.clone()?,
            args: self.server.args.iter().map(Into::into).collect(),
            env: self.environment.clone(),
            directory: self.server.cwd.clone(),
            limits: Limits::default(),
        };
        let mut child = self.spawner.spawn(&command).await?;
        self.log_complaints(&child);
        let (input, output) = child.take_streams().expect("a new child still has its streams");
        let options = LinkOptions {
            heal: self.server.heal,
            max_message: self.max_message,
            one_client: matches!(client.key, Key::Session(_))
                || self.server.mode == Mode::Stateless,
            heals: Arc::clone(&self.heals),
        };
        let complaints = child.complaints();
        let mut live = Live {
            link: Link::start(input, output, &options),
            era: opening.era(),
            hello: None,
            pid: child.id(),
            child: Some(child),
            heals: Arc::clone(&self.heals),
            stopping: Arc::clone(&self.stopping),
            parked: AtomicUsize::new(0),
            _watching: None,
            complaints,
            feeding: Mutex::new(None),
            log_level: Mutex::new(None),
        };
        if let Opening::Legacy { revision, capabilities, info } = opening {
            let deadline = now() + HANDSHAKE.min(self.server.timeout);
            let shaken =
                shake_hands(&live.link, *revision, capabilities, info, deadline, &self.heals).await;
            match shaken {
                Ok(hello) => live.hello = Some(hello),
                Err(error) => return Err(failed_handshake(&live, error).await),
            }
        }
        let changed = Arc::clone(&self.changed);
        live._watching = Some(live.link.listen(Box::new(move |note| {
            if note.method().ends_with("/list_changed") {
                changed.notify_one();
            }
        })));
        if let Some(level) = client.log_level.as_ref().filter(|_| client.era() == Era::Legacy) {
            live.set_log_level(level);
        }
        if let (Some(feed), Mode::Stateful { .. }) = (&client.feed, self.server.mode) {
            live.feed(feed, &client.subscriptions);
        }
        Ok(live)
    }

    /// Logs what the child writes to its standard error.
    fn log_complaints(&self, child: &Child) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (sender, mut lines) = tokio::sync::mpsc::channel(64);
        child.complaints().set_listener(sender);
        let (server, pid) = (self.server.name.to_string(), child.id());
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                tracing::debug!(%server, pid, line, "stderr");
            }
        });
    }

    /// The error a client hears when no child could be started.
    pub fn tell(&self, error: &StartError) -> CallError {
        tracing::warn!(server = %self.server.name, error = error as &dyn std::error::Error, "no child");
        CallError::ServerFailed(format!(
            "the server `{}` did not start: {}",
            self.server.name,
            chain(error)
        ))
    }
}

async fn failed_handshake(live: &Live, error: HandshakeError) -> StartError {
    let how = match error {
        HandshakeError::Gone => {
            let exit = live.exit_within(Duration::from_secs(1)).await;
            exit.map(|exit| format!(": it {exit}")).unwrap_or_default()
        }
        _ => String::new(),
    };
    StartError::Handshake { error, how, complaints: live.complaints.last_lines() }
}

/// How a child is opened for this client.
fn opening_for(client: &Client, child_era: Era) -> Opening {
    match child_era {
        Era::Modern => Opening::Modern,
        Era::Legacy => Opening::Legacy {
            revision: match client.era() {
                Era::Legacy => client.revision,
                Era::Modern => Revision::NEWEST_LEGACY,
            },
            capabilities: client.capabilities.clone(),
            // Modern clients of one address share a child, whatever they call themselves.
            info: match client.era() {
                Era::Legacy => client.info.clone(),
                Era::Modern => own_info(),
            },
        },
    }
}

/// Makes room by letting go of the child that was idle longest. False if all are in use.
fn evict_idle(slots: &mut HashMap<PoolKey, Arc<PoolSlot>>) -> bool {
    let idle = slots.iter().filter(|(_, slot)| slot.in_use.load(Ordering::Acquire) == 0);
    let since = |slot: &PoolSlot| *slot.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
    let oldest = idle.min_by_key(|(_, slot)| since(slot)).map(|(key, _)| key.clone());
    oldest.is_some_and(|oldest| slots.remove(&oldest).is_some())
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

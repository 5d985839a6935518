//! One application without a listener: the bridge between it and one client.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use pontoon_wire::{Era, method};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{BridgeStartError, entry, until};
use crate::back::Surroundings;
use crate::back::child::process::Starter;
use crate::back::child::told::Hearers;
use crate::back::remote::sharing::MeetingPoint;
use crate::config::Config;
use crate::front::bridges::Bridges;
use crate::front::status::{self, StatusLook};
use crate::front::stdio::StdioFront;
use crate::ids::Ids;
use crate::jobs::Store;
use crate::observe::app_status::AppStatus;
use crate::observe::log::{Secrets, Troubles};
use crate::observe::messages::MessageRing;
use crate::observe::metrics::Metrics;
use crate::observe::running::StatusSocket;
use crate::session::admit::Admission;
use crate::session::entry::{CatalogState, Entry};
use crate::session::{Entries, Sessions};

/// How long calls that were cut off may take to say so.
const QUIET: Duration = Duration::from_millis(300);

/// What is kept of what happens, for those who look.
#[derive(Debug)]
pub struct AppRecords {
    /// What must never be logged or shown.
    pub secrets: Secrets,
    /// The last messages.
    pub messages: Arc<MessageRing>,
    /// The last warnings and errors.
    pub troubles: Arc<Troubles>,
}

/// One application, and the sessions of its clients.
#[derive(Debug)]
pub struct LiveBridge {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
    max_message: usize,
    /// The other bridges of this user, and where they come, if they share the connection.
    others: Option<(Arc<MeetingPoint>, Arc<Bridges>)>,
    look: LiveLook,
    stop: CancellationToken,
}

impl LiveBridge {
    /// The application that this configuration names. What it offers is kept in `state_dir`; `starter` runs the
    /// command of its token, if there is one.
    ///
    /// # Errors
    ///
    /// [`BridgeStartError`] when the system gives no thread or no descriptor.
    pub fn new(
        config: &Config,
        state_dir: Option<&Path>,
        metrics: &Arc<Metrics>,
        starter: Starter,
        records: AppRecords,
    ) -> Result<Self, BridgeStartError> {
        let store = Store::nowhere()?;
        // No client comes back with an id.
        let ids = Ids::new(uuid::Uuid::new_v4().as_bytes(), "", SystemTime::now());
        let around = Surroundings::new(config, store, ids, starter, Arc::clone(metrics));
        let mut around = around.map_err(BridgeStartError::Thread)?;
        around.machine.hearers = Hearers::Operator;
        around.machine.secrets = records.secrets;
        around.machine.messages = Some(Arc::clone(&records.messages));
        let stop = CancellationToken::new();
        let server = &config.servers[0];
        let entry = entry(server, &around, state_dir, &stop);
        let entries = Entries::from([(server.name.to_string(), Arc::clone(&entry))]);
        let admission = Admission::new(1, Duration::ZERO, Arc::clone(metrics));
        let (held, ids) = (Arc::clone(&around.machine.held), Arc::clone(&around.keep.ids));
        let sessions = Sessions::new(entries, admission, held, ids, config.ways_to_say_who());
        let look = LiveLook {
            entry: Arc::clone(&entry),
            messages: records.messages,
            troubles: records.troubles,
            began: Instant::now(),
        };
        Ok(Self {
            sessions: Arc::new(sessions),
            entry,
            max_message: config.settings.max_message,
            others: None,
            look,
            stop,
        })
    }

    /// Shares the connection with the other bridges that meet there.
    pub fn share(&mut self, point: MeetingPoint) {
        let point = Arc::new(point);
        let (sessions, entry) = (Arc::clone(&self.sessions), Arc::clone(&self.entry));
        let bridges = Bridges::new(sessions, entry, self.max_message);
        self.entry.back.app().into_iter().for_each(|app| app.share(&point));
        self.others = Some((point, Arc::new(bridges)));
    }

    /// Tells how it is, to those who ask at this socket.
    pub fn tell_status(&self, socket: StatusSocket) {
        let look = self.look.clone();
        let telling = status::serve(socket, move |asked| std::future::ready(look.at(asked)));
        self.sessions.tasks.spawn(until(self.stop.clone(), telling));
    }

    /// Looks for the application, and keeps the connection to it, until the bridge is closed.
    pub fn begin(&self) {
        let keeping = Arc::clone(&self.entry).keep_live();
        self.sessions.tasks.spawn(until(self.stop.clone(), keeping));
        if let Some((point, bridges)) = self.others.clone() {
            let serving = async move { bridges.serve(&point).await };
            self.sessions.tasks.spawn(until(self.stop.clone(), serving));
        }
    }

    /// A front for one client of it.
    pub fn front(&self) -> Arc<StdioFront> {
        let (sessions, entry) = (Arc::clone(&self.sessions), Arc::clone(&self.entry));
        Arc::new(StdioFront::new(sessions, entry, self.max_message))
    }

    /// Lets go of the application, which hears that this is on purpose. What other bridges have asked of it is
    /// answered before that.
    pub async fn close(&self) {
        if let Some((point, bridges)) = &self.others {
            point.close();
            bridges.leave().await;
        }
        // What was cut off is cancelled there first.
        drop(tokio::time::timeout(QUIET, self.entry.back.until_quiet()).await);
        self.stop.cancel();
        if let Some(app) = self.entry.back.app() {
            app.close().await;
        }
        drop(tokio::time::timeout(QUIET, self.entry.back.until_told()).await);
    }
}

/// What is looked at to tell how the bridge is.
#[derive(Debug, Clone)]
struct LiveLook {
    entry: Arc<Entry>,
    messages: Arc<MessageRing>,
    troubles: Arc<Troubles>,
    began: Instant,
}

impl LiveLook {
    fn at(&self, look: StatusLook) -> Value {
        let mut told = self.status().to_json();
        told["errors"] = self.troubles.to_json();
        if look == StatusLook::Messages {
            told["messages"] = self.messages.to_json();
        }
        told
    }

    fn status(&self) -> AppStatus {
        let back = &self.entry.back;
        let Some(app) = back.app() else { return AppStatus::default() };
        let view = app.view();
        let (made, failed) = back.metrics.tool_calls();
        let (learnt, is_current) = self.entry.learnt_at();
        let tools = match self.entry.state() {
            CatalogState::Ready(catalog) => catalog.count(method::LIST_TOOLS),
            _ => 0,
        };
        AppStatus {
            standing: view.standing,
            since: view.since,
            connections: view.connections,
            era: view.connection.as_ref().map(|connection| match connection.era {
                Era::Legacy => "legacy",
                Era::Modern => "modern",
            }),
            through: view.through,
            round_trip: view.connection.and_then(|connection| connection.round_trip()),
            clients: view.clients,
            made,
            failed,
            open: back.running(),
            waiting: back.shared_calls.waiting(),
            heals: back.heals.counts(),
            tools,
            learnt: learnt.and_then(|learnt| learnt.elapsed().ok()),
            is_current,
            uptime: self.began.elapsed(),
        }
    }
}

//! One application without a listener: the bridge between it and one client.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use super::{BridgeStartError, entry, until};
use crate::back::Surroundings;
use crate::back::child::process::Starter;
use crate::back::child::told::Hearers;
use crate::back::remote::sharing::MeetingPoint;
use crate::config::Config;
use crate::front::bridges::Bridges;
use crate::front::stdio::StdioFront;
use crate::ids::Ids;
use crate::jobs::Store;
use crate::observe::metrics::Metrics;
use crate::session::admit::Admission;
use crate::session::entry::Entry;
use crate::session::{Entries, Sessions};

/// How long a call waits for its turn: its own time ends that.
const TURN: Duration = Duration::from_secs(86_400);

/// One application, and the sessions of its clients.
#[derive(Debug)]
pub struct LiveBridge {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
    max_message: usize,
    /// The other bridges of this user, and where they come, if they share the connection.
    others: Option<(Arc<MeetingPoint>, Arc<Bridges>)>,
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
    ) -> Result<Self, BridgeStartError> {
        let store = Store::nowhere()?;
        // No client comes back with an id.
        let ids = Ids::new(uuid::Uuid::new_v4().as_bytes(), "", SystemTime::now());
        let around = Surroundings::new(config, store, ids, starter, Arc::clone(metrics));
        let mut around = around.map_err(BridgeStartError::Thread)?;
        around.machine.hearers = Hearers::Operator;
        let stop = CancellationToken::new();
        let server = &config.servers[0];
        let entry = entry(server, &around, state_dir, &stop);
        let entries = Entries::from([(server.name.to_string(), Arc::clone(&entry))]);
        let admission = Admission::new(1, TURN, Arc::clone(metrics));
        let (held, ids) = (Arc::clone(&around.machine.held), Arc::clone(&around.keep.ids));
        let sessions = Sessions::new(entries, admission, held, ids, config.ways_to_say_who());
        Ok(Self {
            sessions: Arc::new(sessions),
            entry,
            max_message: config.settings.max_message,
            others: None,
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
        self.stop.cancel();
        if let Some(app) = self.entry.back.app() {
            app.close().await;
        }
    }
}

//! What an application offers that comes and goes: learnt anew over each connection to it, and kept meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pontoon_wire::{Era, Slot, json, method};

use super::catalog::{Catalog, Facts};
use super::entry::{CatalogState, Entry, show};
use super::kept;
use super::lists::{LearnError, Trust, learn_lists};
use crate::back::Back;
use crate::back::remote::connection::AppConnection;
use crate::back::remote::live_app::{AppState, LiveApp};
use crate::call::{CallError, list_member};
use crate::clock::{now, since};

/// How long a client that shakes hands waits for an application: it must not be late itself.
const GREETING: Duration = Duration::from_millis(80);

/// How long a list waits for an application that seems to be there.
const LISTING: Duration = Duration::from_secs(2);

/// Changes come in bursts: how long is waited for the next one.
const BURST: Duration = Duration::from_millis(50);

/// What comes sooner after the last one comes hastily.
const CALM: Duration = Duration::from_secs(2);

/// The same of one that says so again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Entry {
    /// Keeps a connection to the application, and learns what it offers whenever that may be another.
    pub async fn keep_live(self: Arc<Self>) {
        let Some(app) = self.back.app().cloned() else { return };
        loop {
            let connection = app.connect().await;
            let why = self.keep_learning(&app, &connection).await;
            self.is_fresh.send_replace(false);
            app.lose(&connection, why.as_deref()).await;
        }
    }

    /// Learns what the application offers as long as this connection lasts. Says why it is of no use, if it was not
    /// the connection that ended.
    async fn keep_learning(&self, app: &LiveApp, connection: &AppConnection) -> Option<String> {
        let (mut is_known, mut pause, mut learnt_at) = (false, BURST, now());
        loop {
            let learnt = tokio::select! {
                learnt = learn(connection, &self.back) => learnt,
                () = connection.lost() => return None,
            };
            match learnt {
                Ok(facts) => {
                    let is_same = !self.set_app(connection.era, facts).await && is_known;
                    // One that says so again and again is believed ever more slowly.
                    let is_hasty = is_same || is_known && since(learnt_at) < CALM;
                    pause = if is_hasty { (2 * pause).min(LONGEST_PAUSE) } else { BURST };
                    (is_known, learnt_at) = (true, now());
                }
                Err(LearnError::Gone) => return None,
                // It is at work, perhaps; what was known stays known.
                Err(why) if is_known => {
                    tracing::warn!(server = %self.back.server.name, %why, "not learnt anew; it is tried again");
                    self.back.changed().note(now());
                    pause = LONGEST_PAUSE;
                }
                Err(why) => {
                    self.set_trouble(Some(&why.to_string()));
                    return Some(format!("it does not say what it offers: {why}"));
                }
            }
            tokio::select! {
                () = connection.lost() => return None,
                () = self.until_due(pause) => {}
            }
            // Nothing is heard of an application that was lost meanwhile.
            app.connection()?;
        }
    }

    /// Waits until the application has said that its lists changed, and is not at work: one that does one thing at a
    /// time could not answer.
    async fn until_due(&self, pause: Duration) {
        self.back.changed().heard().await;
        tokio::time::sleep(pause).await;
        self.back.until_quiet().await;
    }

    /// Takes over what was learnt. Whether it is another than was known.
    async fn set_app(&self, era: Era, facts: Facts) -> bool {
        let tools = facts.lists.get(method::LIST_TOOLS).map_or(0, Vec::len);
        tracing::info!(server = %self.back.server.name, ?era, tools, "application ready");
        let known = self.known_to(Era::Legacy).or_else(|| self.known_to(Era::Modern));
        let mut catalog = Catalog::of(era, facts);
        if let Some(known) = &known {
            catalog.keep_order(known, &self.back.server, &self.back.heals);
        }
        let learnt = self.file.is_some().then(|| catalog.clone());
        let catalog = show(&self.back, catalog, true).await;
        let is_new = known.is_none_or(|known| !known.offers_the_same(&catalog));
        if let (Some(file), Some(learnt), true) = (&self.file, &learnt, is_new)
            && let Err(error) = kept::write(file, learnt, SystemTime::now(), None)
        {
            tracing::warn!(file = %file.display(), error = &error as &dyn std::error::Error, "catalogue not kept");
        }
        self.set_trouble(None);
        self.state.send_replace(CatalogState::Ready(Arc::new(catalog)));
        *self.learnt.lock() = Some(SystemTime::now());
        self.is_fresh.send_replace(true);
        is_new
    }

    /// What the application offers: as it runs now, if that is known soon enough for this method, else as it did
    /// last. A call waits longer, for without the application it cannot be made.
    pub(super) async fn catalog_of_app(&self, method: &str) -> Result<Arc<Catalog>, CallError> {
        let app = self.back.app().ok_or(CallError::Internal)?;
        let mut is_fresh = self.is_fresh.subscribe();
        let fresh = async { is_fresh.wait_for(|is_fresh| *is_fresh).await.is_ok() };
        match method {
            method::PING | method::SET_LEVEL | method::LISTEN => {}
            method::INITIALIZE | method::DISCOVER => {
                drop(tokio::time::timeout(GREETING, fresh_or_away(app, fresh)).await);
            }
            method if list_member(method).is_some() => {
                drop(tokio::time::timeout(LISTING, fresh_or_away(app, fresh)).await);
            }
            _ => {
                let is_there = tokio::time::timeout(app.connect_wait(), fresh).await;
                if !is_there.unwrap_or(false) {
                    return Err(app.not_there());
                }
            }
        }
        match self.state() {
            CatalogState::Ready(catalog) => Ok(catalog),
            _ => Err(CallError::Internal),
        }
    }
}

/// Waits until what the application offers is known, or it is known to be away.
async fn fresh_or_away(app: &LiveApp, fresh: impl Future<Output = bool>) {
    let mut state = app.state();
    let is_away = |state: &AppState| matches!(state, AppState::Away(Some(_)));
    tokio::select! {
        _ = fresh => {}
        _ = state.wait_for(is_away) => {}
    }
}

/// What an application offers over this connection.
async fn learn(connection: &AppConnection, back: &Back) -> Result<Facts, LearnError> {
    let hello = connection.hello.as_ref().ok_or(LearnError::Gone)?;
    let result = hello.raw(Slot::Result).unwrap_or(b"{}");
    let info = match connection.era {
        Era::Legacy => json::find(result, "serverInfo"),
        Era::Modern => hello.raw(Slot::ResultServerInfo),
    };
    let mut facts = learn_lists(connection, result, info, Trust::Fresh, back).await?;
    // A client may have been promised these before the application was seen.
    let lists: HashMap<_, _> =
        [method::LIST_TOOLS, method::LIST_PROMPTS, method::LIST_RESOURCES, method::LIST_TEMPLATES]
            .into_iter()
            .map(|list| (list.to_owned(), Vec::new()))
            .collect();
    for (list, none) in lists {
        facts.lists.entry(list).or_insert(none);
    }
    Ok(facts)
}

//! Taking over another configuration while calls are under way.

use std::sync::Arc;

use super::{App, entry};
use crate::config::Config;
use crate::session::Entries;

impl App {
    /// Serves what this configuration names. What it leaves as it was goes on undisturbed.
    pub(super) fn reload(&self, config: &Config) {
        let before = self.site.sessions.entries();
        if config.has_own_users()
            && let Err(error) = self.around.machine.store.admit_other_users()
        {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the jobs stay shut to other users"
            );
        }
        let mut entries = Entries::new();
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        for server in &config.servers {
            let name = server.name.to_string();
            let entry = match before.get(&name) {
                Some(entry) if *entry.back.server == **server => Arc::clone(entry),
                known => {
                    if known.is_some() { &mut changed } else { &mut added }.push(name.clone());
                    entry(server, &self.around, self.state_dir.as_deref(), &self.stop)
                }
            };
            if let Err(error) = entry.back.check_isolation() {
                // Its calls fail with the same words; the other servers are not concerned.
                tracing::error!(error = &error as &dyn std::error::Error, "a server cannot be run");
            }
            entries.insert(name, entry);
        }
        let fresh: Vec<_> = entries
            .values()
            .filter(|entry| !before.values().any(|known| Arc::ptr_eq(known, entry)))
            .cloned()
            .collect();
        let removed: Vec<_> =
            before.keys().filter(|name| !entries.contains_key(*name)).cloned().collect();
        let retired = before
            .iter()
            .filter(|(name, entry)| entries.get(*name).is_none_or(|now| !Arc::ptr_eq(now, entry)));
        let retired: Vec<_> = retired.map(|(_, entry)| Arc::clone(entry)).collect();
        self.site.sessions.replace(entries);
        fresh.iter().for_each(|entry| self.keep(entry));
        for entry in retired {
            // Calls that are under way hold what they need; everything else of the old one goes.
            entry.back.stop.cancel();
            entry.back.drain();
        }
        tracing::info!(?added, ?changed, ?removed, "configuration taken over");
        self.around.machine.metrics.reloaded(true);
    }
}

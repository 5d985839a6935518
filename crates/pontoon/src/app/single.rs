//! One server without a listener, for a command that uses it alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use pontoon_supervise::{Ladder, Spawner};
use tokio_util::sync::CancellationToken;

use super::{BridgeStartError, entry, settle, until};
use crate::back::child::process::Starter;
use crate::back::child::told::Hearers;
use crate::back::remote::token::TokenReader;
use crate::back::{Surroundings, open_store};
use crate::config::{Config, FileLinks, Server};
use crate::ids::Ids;
use crate::scratch_folder::ScratchFolder;
use crate::session::entry::Entry;

/// The catalogue entry of one server, for a command that uses it alone, and the folder its children
/// work in, which goes with it.
#[derive(Debug)]
pub struct Single {
    /// The server.
    pub entry: Arc<Entry>,
    around: Surroundings,
    spawner: Spawner,
    /// Removed when all else of this is gone.
    scratch: ScratchFolder,
}

impl Single {
    /// The server of that name, if there is one.
    ///
    /// # Errors
    ///
    /// [`BridgeStartError`] when there is no folder to work in.
    pub fn new(
        config: &Config,
        name: &str,
        spawner: &Spawner,
    ) -> Result<Option<Self>, BridgeStartError> {
        let Some(server) = config.server(name) else { return Ok(None) };
        // Files are handed over, so no links to them are wanted.
        let files = match server.files {
            FileLinks::Off => FileLinks::Off,
            FileLinks::Append | FileLinks::Header => FileLinks::Header,
        };
        let server = Arc::new(Server { files, ..Server::clone(server) });
        let scratch = ScratchFolder::new().map_err(BridgeStartError::Scratch)?;
        let store = open_store(config, scratch.path())?;
        ScratchFolder::sweep_others(&store);
        // No client comes back with an id.
        let ids = Ids::new(uuid::Uuid::new_v4().as_bytes(), "", SystemTime::now());
        let starter = Starter::Spawner(spawner.clone());
        let around = Surroundings::new(config, store, ids, starter, Arc::default());
        let mut around = around.map_err(BridgeStartError::Thread)?;
        around.machine.hearers = Hearers::Operator;
        let stop = CancellationToken::new();
        let entry = entry(&server, &around, config.settings.state_dir.as_deref(), &stop);
        if entry.back.app().is_some() {
            // It ends with the server: one that is closed must not be connected anew.
            let stop = entry.back.stop.clone();
            tokio::spawn(until(stop, Arc::clone(&entry).keep_live()));
        }
        Ok(Some(Self { entry, around, spawner: spawner.clone(), scratch }))
    }

    /// Where the files of a job are.
    pub fn files_of(&self, job: uuid::Uuid) -> PathBuf {
        self.scratch.path().join(job.to_string()).join("files")
    }

    /// What reads the token of a server at an address.
    pub(crate) fn token_reader(&self) -> TokenReader {
        let machine = &self.around.machine;
        let (starter, environment) = (machine.starter.clone(), machine.environment.clone());
        TokenReader { starter, environment, secrets: machine.secrets.clone() }
    }

    /// Stops the server's children by this ladder, and leaves nothing behind.
    pub async fn end(self, ladder: &Ladder) {
        self.entry.back.stop.cancel();
        self.entry.back.drain();
        if let Some(app) = self.entry.back.app() {
            app.close().await;
        }
        self.spawner.stop_all(ladder).await;
        settle(&self.around).await;
    }
}

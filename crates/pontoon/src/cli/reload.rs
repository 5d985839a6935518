//! Reading the configuration again: on SIGHUP, and with `--hot-reload` whenever its file changes.
//!
//! A file with a mistake changes nothing: what ran goes on, and the mistakes are told.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{Config, ConfigSource, Environment, Options};
use crate::observe::metrics::Metrics;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The configurations that are read from now on, each complete and checked. `hide` keeps the secrets of a new
/// one out of the log.
pub fn changes(
    options: &Options,
    config: &Config,
    metrics: Arc<Metrics>,
    hide: impl Fn(&Config) + Send + Sync + 'static,
) -> mpsc::Receiver<Config> {
    let (sender, receiver) = mpsc::channel(1);
    let watched = match &config.source {
        ConfigSource::File(path) if config.settings.hot_reload => Some(path.clone()),
        _ => None,
    };
    let options = options.clone();
    tokio::spawn(async move {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        let mut watch = FileWatch::new(watched);
        loop {
            tokio::select! {
                _ = hangup.recv() => {}
                () = watch.changed() => {}
                () = sender.closed() => return,
            }
            let options = options.clone();
            let read = tokio::task::spawn_blocking(move || {
                Config::load(&options, &Environment::of_process())
            });
            match read.await {
                Ok(Ok((config, remarks))) => {
                    // Before a line could have them.
                    hide(&config);
                    if !remarks.is_empty() {
                        tracing::warn!(%remarks, "the configuration was read again, with remarks");
                    }
                    if sender.send(config).await.is_err() {
                        return;
                    }
                }
                Ok(Err(remarks)) => {
                    metrics.reloaded(false);
                    tracing::error!(%remarks, "the new configuration has mistakes; the old one stays");
                }
                Err(_) => metrics.reloaded(false),
            }
        }
    });
    receiver
}

/// A file that may change.
struct FileWatch {
    file: Option<PathBuf>,
    seen: Option<FileVersion>,
}

/// What differs when a file was written or replaced.
type FileVersion = (u64, u64, i64, i64);

impl FileWatch {
    fn new(file: Option<PathBuf>) -> Self {
        let mut watch = Self { file, seen: None };
        watch.seen = watch.look();
        watch
    }

    /// How the file is; `None` while it is missing, as it is for a moment when editors save.
    fn look(&self) -> Option<FileVersion> {
        let facts = std::fs::metadata(self.file.as_ref()?).ok()?;
        Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
    }

    /// Waits until the file is another, and has been the same for two looks: then it is whole.
    /// Cancel safe: nothing is noted before the end.
    async fn changed(&mut self) {
        if self.file.is_none() {
            return std::future::pending().await;
        }
        let mut last = self.seen;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.look();
            if now.is_some() && now != self.seen && now == last {
                self.seen = now;
                return;
            }
            last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_once_the_file_is_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = FileWatch::new(Some(file.path().to_owned()));
        let soon = Duration::from_secs(10);
        assert!(tokio::time::timeout(soon, watch.changed()).await.is_err());
        std::fs::write(&file, "changed").unwrap();
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
        assert!(tokio::time::timeout(soon, watch.changed()).await.is_err());
    }
}

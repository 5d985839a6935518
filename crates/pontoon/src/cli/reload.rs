//! Reading files again: the configuration on SIGHUP, and with `--hot-reload` whenever its file changes; the certificate
//! on SIGHUP and whenever its files change.
//!
//! A file with a mistake changes nothing: what ran goes on, and the mistakes are told. The two are apart: a certificate
//! that is half renewed keeps no server back.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{Config, ConfigSource, Environment, Options, Weight};
use crate::front::tls::ServerTls;
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
        ConfigSource::File(path) if config.settings.hot_reload => vec![path.clone()],
        _ => Vec::new(),
    };
    let options = Options { is_running: true, ..options.clone() };
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
                    for remark in remarks.iter() {
                        tracing::warn!(%remark, "the configuration was read again");
                    }
                    if sender.send(config).await.is_err() {
                        return;
                    }
                }
                Ok(Err(remarks)) => {
                    metrics.reloaded(false);
                    // One line for each, as a reader needs them.
                    for remark in remarks.iter() {
                        match remark.weight {
                            Weight::Warning => tracing::warn!(%remark, "in the new configuration"),
                            _ => tracing::error!(%remark, "a mistake in the new configuration"),
                        }
                    }
                    tracing::error!("the new configuration has mistakes; the old one stays");
                }
                Err(_) => metrics.reloaded(false),
            }
        }
    });
    receiver
}

/// Shows what is in the files of a certificate from now on.
pub async fn follow(tls: Arc<ServerTls>) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    let mut watch = FileWatch::new(tls.files());
    loop {
        // At first, too: they may have changed before they were watched.
        let read = Arc::clone(&tls);
        drop(tokio::task::spawn_blocking(move || read.renew()).await);
        tokio::select! {
            _ = hangup.recv() => {}
            () = watch.changed() => {}
        }
    }
}

/// Files that may change, all of them or one.
struct FileWatch {
    files: Vec<PathBuf>,
    seen: Option<Vec<FileVersion>>,
}

/// What differs when a file was written or replaced.
type FileVersion = (u64, u64, i64, i64);

impl FileWatch {
    fn new(files: Vec<PathBuf>) -> Self {
        let mut watch = Self { files, seen: None };
        watch.seen = watch.look();
        watch
    }

    /// How the files are; `None` while one is missing, as it is for a moment when editors save.
    fn look(&self) -> Option<Vec<FileVersion>> {
        let version = |file: &PathBuf| {
            let facts = std::fs::metadata(file).ok()?;
            Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
        };
        self.files.iter().map(version).collect()
    }

    /// Waits until the files are others, and have been the same for two looks: then they are whole.
    /// Cancel safe: nothing is noted before the end.
    async fn changed(&mut self) {
        if self.files.is_empty() {
            return std::future::pending().await;
        }
        let mut last = self.seen.clone();
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
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::pem_files::samples::{EC, RSA, write};

    /// Goes on once this holds, by a clock that is stopped.
    async fn until(holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it holds at last");
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_shown_soon_after_its_files_changed_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), EC);
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let tls = Arc::new(ServerTls::load(&certificate, &key).unwrap());
        let of = |pair: [&str; 2]| CertificateDer::from_pem_slice(pair[0].as_bytes()).unwrap();
        assert_eq!(tls.shown(), of(EC));
        // What changed before it is followed is seen as well.
        write(folder.path(), RSA);
        let following = tokio::spawn(follow(Arc::clone(&tls)));
        until(|| tls.shown() == of(RSA)).await;
        // A program that renews them writes one after the other.
        std::fs::write(&certificate, EC[0]).unwrap();
        until(|| tls.fault().is_some()).await;
        assert_eq!(tls.shown(), of(RSA));
        assert!(tls.fault().unwrap().why.contains("not the key of"));
        std::fs::write(&key, EC[1]).unwrap();
        until(|| tls.fault().is_none()).await;
        assert_eq!(tls.shown(), of(EC));
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_once_the_file_is_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = FileWatch::new(vec![file.path().to_owned()]);
        let soon = Duration::from_secs(10);
        assert!(tokio::time::timeout(soon, watch.changed()).await.is_err());
        std::fs::write(&file, "changed").unwrap();
        tokio::time::timeout(soon, watch.changed()).await.unwrap();
        assert!(tokio::time::timeout(soon, watch.changed()).await.is_err());
    }
}

//! The file that tells clients on this machine where an application is, and with which token.
//!
//! `NAME-PID.json`, for its owner only: `{"pid","url","name","token","started"}`. It is locked as long as the
//! application lives, so that one that was left behind is known for sure.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use super::options::{Announce, WebSocketError};
use crate::protocol::SOCKET_PERMISSIONS;

/// A file that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Announcement {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl Announcement {
    /// Tells where the application is, in the place that was chosen.
    pub(super) fn make(
        announce: Announce,
        name: &str,
        url: &str,
        token: Option<&str>,
    ) -> Result<Option<Self>, WebSocketError> {
        let write = |folder: PathBuf| {
            Self::write(&folder, name, url, token)
                .map_err(|source| WebSocketError::Announce { path: folder, source })
        };
        match announce {
            Announce::Nowhere => Ok(None),
            Announce::In(folder) => write(folder).map(Some),
            Announce::Usual => match usual_folder().map(write) {
                Some(Ok(announcement)) => Ok(Some(announcement)),
                Some(Err(error)) => {
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, source, "clients do not find the application by its name");
                    Ok(None)
                }
                None => Ok(None),
            },
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn write(folder: &Path, name: &str, url: &str, token: Option<&str>) -> io::Result<Self> {
        make_folder(folder)?;
        let plain = file_name_of(name);
        sweep(folder, &plain);
        let pid = std::process::id();
        let path = folder.join(format!("{plain}-{pid}.json"));
        let new = folder.join(format!(".{plain}-{pid}.{}", uuid::Uuid::new_v4().simple()));
        let mut text = serde_json::json!({"pid": pid, "url": url, "name": name});
        if let Some(token) = token {
            text["token"] = token.into();
        }
        text["started"] = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().into();
        let file =
            OpenOptions::new().write(true).create_new(true).mode(SOCKET_PERMISSIONS).open(&new)?;
        let written = (&file)
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| Ok(flock(&file, FlockOperation::NonBlockingLockExclusive)?))
            .and_then(|()| fs::rename(&new, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        Ok(Self { path, file })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Not that of a second server of this name in this process.
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// Removes the files of applications of this name that ended without a word.
fn sweep(folder: &Path, name: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let number = path.file_name().and_then(|it| {
            it.to_str()?.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".json")
        });
        if !number.is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit())) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        // Its application holds the lock as long as it lives.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_same(&file, &path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Makes the folder for its owner only. One that others could write to is not used.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let about = fs::metadata(folder)?;
    if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
        return Err(io::Error::other(
            "the folder is not its owner's alone: others may write there",
        ));
    }
    Ok(())
}

fn usual_folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = absolute("XDG_RUNTIME_DIR");
    let base = base.or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("pontoon/apps"))
}

fn file_name_of(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(100).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn announce(folder: &Path) -> Announcement {
        Announcement::write(folder, "live app/1", "ws://127.0.0.1:7400/", Some("secret")).unwrap()
    }

    #[test]
    fn a_client_of_the_same_user_finds_the_application_and_nobody_else() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("pontoon/apps");
        let announcement = announce(&folder);
        let path = folder.join(format!("live_app_1-{}.json", std::process::id()));
        assert_eq!(announcement.path(), path);
        let text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let started = text["started"].as_str().unwrap();
        assert!(started.starts_with("20") && started.ends_with('Z'), "{started}");
        let expected = serde_json::json!({
            "pid": std::process::id(), "url": "ws://127.0.0.1:7400/", "name": "live app/1",
            "token": "secret", "started": started,
        });
        assert_eq!(text, expected);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));
        drop(announcement);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_was_left_behind_goes_and_one_that_is_held_stays() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["live_app_1-1.json", "live_app_1-x.json", "live_app_1-2.txt", "other-1.json"] {
            fs::write(folder.join(name), "{}").unwrap();
        }
        let held = File::open(folder.join("other-1.json")).unwrap();
        fs::rename(folder.join("other-1.json"), folder.join("live_app_1-3.json")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let announcement = announce(folder);
        let mut left: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let ours = announcement.path().file_name().unwrap().to_str().unwrap();
        let mut expected = ["live_app_1-2.txt", "live_app_1-3.json", ours, "live_app_1-x.json"];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_second_server_of_the_same_name_keeps_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("apps");
        let first = announce(&folder);
        let second = announce(&folder);
        drop(first);
        assert!(second.path().exists());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Announcement::write(folder.path(), "app", "ws://x/", None).unwrap_err();
        assert!(refused.to_string().contains("others may write there"), "{refused}");
    }
}

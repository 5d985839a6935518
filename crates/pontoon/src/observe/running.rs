//! The bridges of a user that run: how each makes itself known, and how they are found.
//!
//! Each has two files in a folder that only its user may enter: a lock, which it holds and which says what it is, and a
//! socket, where it tells how it is to those who say the word that is in the lock. Whose lock is free is gone, however it
//! ended, and its files are removed by the next that looks. No other file is ever removed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::net::UnixListener;
use uuid::Uuid;

use super::program::RunningProgram;
use crate::date::to_seconds;
use crate::private_folder::{
    LockTry, check_folder, check_length, claim, identity, is_at, listen, make_folder, try_lock,
};

/// So many files are looked at.
const MAX_FILES: usize = 4096;

/// Other processes look at a new lock for a moment, and it is theirs so long.
const TRIES: usize = 8;

/// What a bridge says of itself that stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeFacts {
    /// Its process.
    pub pid: u32,
    /// Its command: `connect` or `serve`.
    pub kind: String,
    /// Where its application is, or where it listens.
    pub address: String,
    /// When it began.
    pub started: String,
    /// Its version.
    pub version: String,
    /// What it runs.
    pub program: Option<RunningProgram>,
}

impl BridgeFacts {
    /// Those of this process.
    pub fn of_process(kind: &str, address: String) -> Self {
        Self {
            pid: std::process::id(),
            kind: kind.to_owned(),
            address,
            started: to_seconds(SystemTime::now()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            program: RunningProgram::of_process(),
        }
    }
}

/// The word that is said at the socket of a bridge before anything is asked. A process of the same user finds the
/// socket without entering its folder, but this stands only in the lock, which a confined server cannot read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusWord(String);

impl StatusWord {
    /// So long is each of them, in bytes.
    pub const LENGTH: usize = 32;

    /// Another than every one before.
    pub fn random() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    /// As it is said.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether this is the word. How long that takes tells nothing of it.
    pub fn is(&self, said: &[u8]) -> bool {
        self.as_bytes().ct_eq(said).into()
    }
}

impl fmt::Debug for StatusWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatusWord")
    }
}

/// Where a bridge is asked how it is.
#[derive(Debug)]
pub struct StatusSocket {
    /// Where those who ask come.
    pub listener: UnixListener,
    /// What they have to say first.
    pub word: StatusWord,
}

/// What is in a lock.
#[derive(Serialize, Deserialize)]
struct LockText {
    #[serde(flatten)]
    facts: BridgeFacts,
    word: StatusWord,
}

/// The files of this bridge. They go with it.
#[derive(Debug)]
pub struct Announcement {
    lock: File,
    lock_path: PathBuf,
    socket_path: PathBuf,
}

impl Announcement {
    /// Makes this bridge known in that folder, and gives the socket where it is asked.
    ///
    /// # Errors
    ///
    /// When the folder is open to others or its path too long, or what the system says.
    pub fn new(folder: &Path, facts: BridgeFacts) -> io::Result<(Self, StatusSocket)> {
        make_folder(folder)?;
        remove_stale(folder);
        let text = LockText { facts, word: StatusWord::random() };
        for _ in 0..TRIES {
            // Processes of several containers may have one folder, and one number.
            let name = format!("{}-{}", text.facts.pid, &Uuid::new_v4().simple().to_string()[..8]);
            let lock_path = folder.join(format!("{name}.lock"));
            let socket_path = folder.join(format!("{name}.sock"));
            check_length(&socket_path)?;
            let LockTry::Ours(mut lock) = claim(&lock_path)? else { continue };
            lock.write_all(&serde_json::to_vec(&text)?)?;
            let own = Self { lock, lock_path, socket_path };
            let listener = listen(&own.socket_path)?;
            return Ok((own, StatusSocket { listener, word: text.word }));
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if self.lock.metadata().is_ok_and(|lock| is_at(&self.lock_path, identity(&lock))) {
            drop(fs::remove_file(&self.socket_path));
            drop(fs::remove_file(&self.lock_path));
        }
    }
}

/// A bridge that runs.
#[derive(Debug)]
pub struct RunningBridge {
    /// What it says of itself; `None` before it has said so.
    pub facts: Option<BridgeFacts>,
    /// What is said before it is asked; `None` before it has said what it is.
    pub word: Option<StatusWord>,
    /// Its process, as its files are called.
    pub pid: u32,
    /// Where it is asked.
    pub socket: PathBuf,
    lock: PathBuf,
}

impl RunningBridge {
    /// What it says of itself now; `None` if it has ended. Another process that looks for bridges holds the lock of one
    /// that is gone for a moment, and it seems to run so long.
    pub fn again(&self) -> Option<Self> {
        Self::at(&self.lock)
    }

    /// The bridge whose lock this is, if it runs. What is left of one that is gone is removed.
    fn at(lock: &Path) -> Option<Self> {
        let pid = announced(lock)?;
        match try_lock(lock) {
            Ok(LockTry::Other(text)) => {
                let text: Option<LockText> = serde_json::from_str(&text).ok();
                let (facts, word) = text.map(|text| (text.facts, text.word)).unzip();
                let (socket, lock) = (lock.with_extension("sock"), lock.to_owned());
                Some(Self { facts, word, pid, socket, lock })
            }
            Ok(LockTry::Ours(own)) => {
                remove(lock, &own);
                None
            }
            // It has ended meanwhile.
            Err(_) => None,
        }
    }
}

/// The bridges that run and are known in this folder, in the order in which they began. What others left is removed.
///
/// # Errors
///
/// When the folder is open to others, or cannot be read. If it is not there, no bridge runs.
pub fn find(folder: &Path) -> io::Result<Vec<RunningBridge>> {
    match check_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        checked => checked?,
    }
    let entries = fs::read_dir(folder)?.take(MAX_FILES).flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| RunningBridge::at(&entry.path())).collect();
    let began = |bridge: &RunningBridge| bridge.facts.as_ref().map(|facts| facts.started.clone());
    found.sort_by_cached_key(|bridge| (began(bridge), bridge.pid));
    Ok(found)
}

/// Removes what bridges left that are gone.
fn remove_stale(folder: &Path) {
    if let Err(error) = find(folder) {
        tracing::debug!(folder = %folder.display(), %error, "not looked for what others left");
    }
}

/// The process whose lock this is, if it is one.
fn announced(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_suffix(".lock")?;
    let (pid, random) = name.split_once('-')?;
    let is_random = random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    pid.parse().ok().filter(|_| is_random)
}

/// Removes the files of a bridge that is gone. While its lock is ours, no other can have made it.
fn remove(path: &Path, lock: &File) {
    if lock.metadata().is_ok_and(|lock| is_at(path, identity(&lock))) {
        drop(fs::remove_file(path.with_extension("sock")));
        drop(fs::remove_file(path));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn facts() -> BridgeFacts {
        BridgeFacts::of_process("connect", "ws://127.0.0.1:7400/".to_owned())
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[tokio::test]
    async fn a_bridge_is_found_while_it_runs_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("status");
        assert!(find(&folder).unwrap().is_empty(), "there is no folder yet");
        let (first, _listener) = Announcement::new(&folder, facts()).unwrap();
        let (second, _other) = Announcement::new(&folder, facts()).unwrap();
        let found = find(&folder).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].facts, Some(facts()));
        let words = [0, 1].map(|at| found[at].word.clone().unwrap());
        assert!(words.iter().all(|word| word.as_bytes().len() == StatusWord::LENGTH));
        assert_ne!(words[0], words[1]);
        assert!(!format!("{found:?}").contains(&words[0].0), "it is in no log");
        for file in fs::read_dir(&folder).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        drop(first);
        assert_eq!((find(&folder).unwrap().len(), names(&folder)), (1, 2));
        drop(second);
        assert_eq!(names(&folder), 0);
    }

    #[tokio::test]
    async fn what_a_killed_bridge_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("status");
        let (_living, _listener) = Announcement::new(&folder, facts()).unwrap();
        fs::write(folder.join("99-0123abcd.lock"), "{}").unwrap();
        drop(UnixListener::bind(folder.join("99-0123abcd.sock")).unwrap());
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        fs::write(folder.join("99-short.lock"), "mine").unwrap();
        assert_eq!((find(&folder).unwrap().len(), names(&folder)), (1, 4));
        fs::write(folder.join("98-0123abcd.lock"), "").unwrap();
        let (_other, _its) = Announcement::new(&folder, facts()).unwrap();
        assert_eq!(names(&folder), 6, "a bridge that begins looks, too");
    }

    #[tokio::test]
    async fn a_folder_that_others_may_enter_is_refused() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        assert!(find(home.path()).unwrap_err().to_string().contains("chmod 700"));
        assert!(Announcement::new(home.path(), facts()).is_err());
    }
}

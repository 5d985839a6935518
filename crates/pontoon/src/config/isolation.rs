//! What a process of a server is kept from, and what it may use.
//!
//! This says what the user wants; the `supervise` crate knows what the system can give.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::document::{DocumentNode, DocumentReader};
use super::draft::{Draft, FileContext};
use super::keys::{ServerKey, key_table};
use super::nearest::unknown;
use super::remarks::Weight;
use super::units;

/// What a process of a server is kept from, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Isolation {
    /// How far it is kept apart.
    pub level: Level,
    /// Whether it reaches the network.
    pub network: Network,
    /// Whether less than this will do where the system cannot give it.
    pub best_effort: bool,
    /// How much memory the process and what it starts may use together.
    pub memory_bytes: Option<u64>,
    /// How many processes there may be at once.
    pub processes: Option<u64>,
    /// How long one process may compute.
    pub cpu: Option<Duration>,
    /// How large a file may become.
    pub file_size_bytes: Option<u64>,
    /// How many files may be open at once.
    pub open_files: Option<u64>,
    /// How long the process may live.
    pub run_time: Option<Duration>,
    /// More absolute paths that a confined process may read.
    pub read: Vec<PathBuf>,
    /// More absolute paths that a confined process may write.
    pub write: Vec<PathBuf>,
}

/// How far a process is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Guarded against accidents; it has our own rights.
    #[default]
    Basic,
    /// It writes to its workspace only, and reads little more than the system.
    Confined,
    /// Confined, and each session has a user of the system for itself.
    User,
}

/// Whether a process reaches the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// It does.
    #[default]
    Open,
    /// It does not.
    None,
}

const LEVELS: [(&str, Level); 3] =
    [("basic", Level::Basic), ("confined", Level::Confined), ("user", Level::User)];

key_table! {
    /// Every key of the object `isolation`.
    ISOLATION_KEYS(draft, node, reader, around):
    /// `"basic"`: own process group, no inherited files, no new privileges, own folder for temporary files; it has
    /// Pontoon's rights, so it is guarded against accidents only. `"confined"`: also reads little more than the system
    /// and its program, writes only to its workspace, and is refused dangerous system calls. `"user"`: also has a user
    /// of the system for each session, which needs Pontoon to run as root.
    "level", "\"basic\"" => draft.server.isolation.level = reader.word(node, &LEVELS).unwrap_or_default();
    /// `"none"`: the process reaches nobody.
    "network", "\"open\"" => {
        let words = [("open", Network::Open), ("none", Network::None)];
        draft.server.isolation.network = reader.word(node, &words).unwrap_or_default();
    };
    /// What the system cannot give is an error, unless this is `true`.
    "best_effort", "false" => draft.server.isolation.best_effort = reader.boolean(node).unwrap_or_default();
    /// How much memory: bytes, or text such as `"512MiB"`.
    "memory", "no limit" => draft.server.isolation.memory_bytes = reader.measure(node, units::bytes);
    /// How many processes and threads at once.
    "processes", "no limit" => draft.server.isolation.processes = number(node, reader);
    /// How long one process may compute: whole seconds, or text such as `"5m"`.
    "cpu", "no limit" => draft.server.isolation.cpu = reader.measure(node, units::whole_seconds);
    /// How large one file may become: bytes, or text such as `"100MiB"`.
    "file_size", "no limit" => draft.server.isolation.file_size_bytes = reader.measure(node, units::bytes);
    /// How many files may be open at once.
    "open_files", "no limit" => draft.server.isolation.open_files = number(node, reader);
    /// How long one process may live, whatever it does: seconds, or text such as `"2h"`.
    "run_time", "no limit" => draft.server.isolation.run_time = reader.measure(node, units::duration);
    /// More files and folders that a `"confined"` process may read, relative to the folder of this file.
    "read", "[]" => draft.server.isolation.read = paths(node, reader, around.folder);
    /// More files and folders that a `"confined"` process may write.
    "write", "[]" => draft.server.isolation.write = paths(node, reader, around.folder);
}

/// What is written under `isolation`: the word of a level, or an object.
pub(super) fn read(
    draft: &mut Draft,
    node: &DocumentNode<'_>,
    reader: &mut DocumentReader<'_>,
    around: &FileContext<'_>,
) {
    if !node.is_object() {
        draft.server.isolation.level = reader.word(node, &LEVELS).unwrap_or_default();
        return;
    }
    for member in reader.members(node).unwrap_or_default() {
        match ISOLATION_KEYS.iter().find(|key| key.name == member.name) {
            Some(key) => (key.read)(draft, &member.node, reader, around),
            // Unlike elsewhere no warning will do: somebody relies on what it was to keep out.
            None => {
                let known = ISOLATION_KEYS.iter().map(|key| key.name);
                let message = unknown("key", &member.name, known);
                reader.about_name(Weight::Mistake, &member, message);
            }
        }
    }
}

fn number(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> Option<u64> {
    reader.measure(node, units::count).map(|count| count as u64)
}

/// Paths from the root. A missing one breaks the server, whose start would fail.
fn paths(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>, folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for item in reader.items(node, "a list of paths").unwrap_or_default() {
        let Some(path) = reader.filled_text(&item).map(|path| folder.join(path)) else { continue };
        if !path.exists() {
            let message = format!("there is no file or folder `{}`", path.display());
            reader.about(Weight::BrokenServer, &item, message);
        }
        paths.push(path);
    }
    paths
}

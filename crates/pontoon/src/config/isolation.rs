//! What a process of a server is kept from, and what it may use.
//!
//! This says what the user wants; the `supervise` crate knows what the system can give.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::document::{DocumentNode, DocumentReader};
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

/// A key of the object `isolation`.
pub(super) struct IsolationKey {
    pub(super) name: &'static str,
    /// The value without it, as it would be written.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) default: &'static str,
    /// For a user, as Markdown.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) doc: &'static str,
    read: fn(&mut Isolation, &DocumentNode<'_>, &mut DocumentReader<'_>, &Path),
}

const LEVELS: [(&str, Level); 3] =
    [("basic", Level::Basic), ("confined", Level::Confined), ("user", Level::User)];

/// Every key of the object `isolation`.
pub(super) const ISOLATION_KEYS: &[IsolationKey] = &[
    IsolationKey {
        name: "level",
        default: "\"basic\"",
        doc: "`\"basic\"`: own process group, no inherited files, no new privileges, own folder \
              for temporary files; it has Pontoon's rights, so it is guarded against accidents \
              only. `\"confined\"`: also reads little more than the system and its program, \
              writes only to its workspace, and is refused dangerous system calls. `\"user\"`: \
              also has a user of the system for each session, which needs Pontoon to run as root.",
        read: |isolation, node, reader, _| {
            isolation.level = reader.word(node, &LEVELS).unwrap_or_default();
        },
    },
    IsolationKey {
        name: "network",
        default: "\"open\"",
        doc: "`\"none\"`: the process reaches nobody.",
        read: |isolation, node, reader, _| {
            let words = [("open", Network::Open), ("none", Network::None)];
            isolation.network = reader.word(node, &words).unwrap_or_default();
        },
    },
    IsolationKey {
        name: "best_effort",
        default: "false",
        doc: "What the system cannot give is an error, unless this is `true`.",
        read: |isolation, node, reader, _| {
            isolation.best_effort = reader.boolean(node).unwrap_or_default();
        },
    },
    IsolationKey {
        name: "memory",
        default: "no limit",
        doc: "How much memory: bytes, or text such as `\"512MiB\"`.",
        read: |isolation, node, reader, _| {
            isolation.memory_bytes = reader.measure(node, units::bytes);
        },
    },
    IsolationKey {
        name: "processes",
        default: "no limit",
        doc: "How many processes and threads at once.",
        read: |isolation, node, reader, _| isolation.processes = number(node, reader),
    },
    IsolationKey {
        name: "cpu",
        default: "no limit",
        doc: "How long one process may compute: whole seconds, or text such as `\"5m\"`.",
        read: |isolation, node, reader, _| {
            isolation.cpu = reader.measure(node, units::whole_seconds);
        },
    },
    IsolationKey {
        name: "file_size",
        default: "no limit",
        doc: "How large one file may become: bytes, or text such as `\"100MiB\"`.",
        read: |isolation, node, reader, _| {
            isolation.file_size_bytes = reader.measure(node, units::bytes);
        },
    },
    IsolationKey {
        name: "open_files",
        default: "no limit",
        doc: "How many files may be open at once.",
        read: |isolation, node, reader, _| isolation.open_files = number(node, reader),
    },
    IsolationKey {
        name: "run_time",
        default: "no limit",
        doc: "How long one process may live, whatever it does: seconds, or text such as `\"2h\"`.",
        read: |isolation, node, reader, _| {
            isolation.run_time = reader.measure(node, units::duration);
        },
    },
    IsolationKey {
        name: "read",
        default: "[]",
        doc: "More files and folders that a `\"confined\"` process may read, relative to the \
              folder of this file.",
        read: |isolation, node, reader, folder| isolation.read = paths(node, reader, folder),
    },
    IsolationKey {
        name: "write",
        default: "[]",
        doc: "More files and folders that a `\"confined\"` process may write.",
        read: |isolation, node, reader, folder| isolation.write = paths(node, reader, folder),
    },
];

/// What is written under `isolation`: the word of a level, or an object.
pub(super) fn read(
    node: &DocumentNode<'_>,
    reader: &mut DocumentReader<'_>,
    folder: &Path,
) -> Isolation {
    let mut isolation = Isolation::default();
    if !node.is_object() {
        isolation.level = reader.word(node, &LEVELS).unwrap_or_default();
        return isolation;
    }
    for member in reader.members(node).unwrap_or_default() {
        match ISOLATION_KEYS.iter().find(|key| key.name == member.name) {
            Some(key) => (key.read)(&mut isolation, &member.node, reader, folder),
            // Unlike elsewhere no warning will do: somebody relies on what it was to keep out.
            None => {
                let known = ISOLATION_KEYS.iter().map(|key| key.name);
                let message = unknown("key", &member.name, known);
                reader.about_name(Weight::Mistake, &member, message);
            }
        }
    }
    isolation
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

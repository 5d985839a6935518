//! Collecting: what has expired and is in use by nobody goes.
//!
//! A job expires by the `created_at` of its record, or by the time of its directory where it has
//! none; a session by its last heartbeat. What has not ended may be in use by any bridge that
//! shares the directory, so its heartbeat must have stopped, too.
//!
//! A child with our user can set the time of a directory, though it can reach nothing in it. So a
//! heartbeat is taken from the time that nobody can set, too; what has ended needs none.
//!
//! The wall clock is trusted with care: what was made in its future is kept, and a sweep that finds
//! it set since the last one removes nothing. The first sweep of a process has no last one.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, renameat, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use tracing::{info, warn};
use uuid::Uuid;

use super::beneath::{names_in, open_folder};
use super::download::is_job_name;
use super::instance::{Other, QUIET, others};
use super::journal;
use super::node::FileNode;
use super::record::{CallStatus, Head};
use super::remove::remove_tree;
use super::root::{JOURNAL, SESSIONS, TRASH};
use super::scratch;
use super::shared::SharedStore;
use super::trash::{self, PATIENCE, throw_away};
use super::workspace::is_workspace_name;
use crate::plain_file::remove_unfinished;

/// How far the wall clock may be from where it should be since the last sweep.
const MAX_JUMP: Duration = Duration::from_secs(300);

/// What a sweep did, or would do.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// The ids of the jobs that are gone.
    pub removed_jobs: Vec<String>,
    /// The names of the sessions whose workspaces are gone.
    pub removed_sessions: Vec<String>,
    /// What could not be removed. The next sweep tries again.
    pub failed: Vec<NotRemoved>,
    /// Whether the clock was set since the last sweep, so that nothing was removed.
    #[serde(skip)]
    pub clock_jumped: bool,
}

/// Something that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotRemoved {
    /// What it is called.
    pub name: String,
    /// Why it is still there.
    pub error: String,
}

/// Removes what has expired; `clock` is what time it is by the clock that nobody sets.
pub(super) fn sweep(store: &SharedStore, now: SystemTime, clock: Instant) -> Swept {
    let mut swept = Swept::default();
    let last = store.last_sweep.lock().replace((now, clock));
    if let Some(last) = last
        && has_jumped(last, (now, clock))
    {
        warn!("the clock was set since the last sweep; nothing is removed this time");
        swept.clock_jumped = true;
        return swept;
    }
    let found = store.root.check_place().and_then(|()| look(store, now));
    let expired = match found {
        Ok(expired) => expired,
        Err(error) => {
            swept.fail(&store.root.path().display().to_string(), &error);
            return swept;
        }
    };
    for (kind, name, age) in expired {
        match take_away(store, kind, &name, age) {
            Ok(true) => {
                match kind {
                    SweptKind::Job => info!(job_id = name, "an expired job is removed"),
                    SweptKind::Session => info!(session = name, "an expired session is removed"),
                }
                swept.add(kind, name);
            }
            Ok(false) => {}
            Err(error) => swept.fail(&name, &error),
        }
    }
    empty_trash(store, &mut swept);
    for (folder, error) in scratch::sweep(&store.root, now) {
        swept.fail(&folder.display().to_string(), &error);
    }
    if let Err(error) = remove_halves(store, now) {
        swept.fail(SESSIONS, &error);
    }
    // There may be room again.
    store.deferred.write(&store.root);
    if let Err(error) = remove_journals(store, now) {
        swept.fail(JOURNAL, &error);
    }
    swept
}

impl Swept {
    fn add(&mut self, kind: SweptKind, name: String) {
        match kind {
            SweptKind::Job => self.removed_jobs.push(name),
            SweptKind::Session => self.removed_sessions.push(name),
        }
    }

    fn fail(&mut self, what: &str, error: &io::Error) {
        warn!(
            what,
            error = error as &dyn std::error::Error,
            "not removed; the next sweep tries again"
        );
        self.failed.push(NotRemoved { name: what.to_owned(), error: error.to_string() });
    }
}

fn has_jumped(last: (SystemTime, Instant), this: (SystemTime, Instant)) -> bool {
    let should_be = last.0 + this.1.saturating_duration_since(last.1);
    let off = this.0.duration_since(should_be).unwrap_or_else(|error| error.duration());
    off > MAX_JUMP
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweptKind {
    Job,
    Session,
}

/// What is known of a job or session that may have to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Age {
    /// When its time began.
    since: SystemTime,
    /// Its last heartbeat, or the last record that was written.
    touched: SystemTime,
    /// Whether its call has ended, so that no heart has to beat for it.
    has_ended: bool,
    /// The time of its directory, which is another once somebody uses it.
    mark: SystemTime,
}

impl Age {
    /// Whether its time is over and nobody uses it, as far as times can tell.
    fn is_over(self, now: SystemTime, expiry: Duration) -> bool {
        // What comes from the future was made before the clock was set back: it is kept.
        let is_past = |then, age| now.duration_since(then).is_ok_and(|since| since >= age);
        let quiet = if self.has_ended { QUIET.min(expiry) } else { QUIET };
        is_past(self.since, expiry) && is_past(self.touched, quiet)
    }
}

/// What a sweep would remove.
pub(super) fn find(store: &SharedStore, now: SystemTime) -> io::Result<Swept> {
    let mut expired = Swept::default();
    look(store, now)?.into_iter().for_each(|(kind, name, _)| expired.add(kind, name));
    Ok(expired)
}

/// What has expired, with what was seen of each.
fn look(store: &SharedStore, now: SystemTime) -> io::Result<Vec<(SweptKind, String, Age)>> {
    let others = others(&store.root, store.instance.as_ref())?;
    let hearts_beat = others.iter().all(|other| has_heartbeat(other, now));
    if !hearts_beat {
        warn!("a bridge is alive without a heartbeat, or the clock was set; only what ended goes");
    }
    let mut expired = Vec::new();
    let root = store.root.fd();
    for name in names_in(&root)? {
        if is_job_name(&name)
            && let Some(age) = age_of(store, SweptKind::Job, &root, &name, now)?
            && age.is_over(now, store.options.expiry)
            && (age.has_ended || hearts_beat)
        {
            expired.push((SweptKind::Job, name, age));
        }
    }
    let sessions = store.root.folder(SESSIONS)?;
    for name in names_in(&sessions)? {
        if is_workspace_name(&name)
            && hearts_beat
            && let Some(age) = age_of(store, SweptKind::Session, &sessions, &name, now)?
            && age.is_over(now, store.options.expiry)
        {
            expired.push((SweptKind::Session, name, age));
        }
    }
    Ok(expired)
}

fn has_heartbeat(other: &Other, now: SystemTime) -> bool {
    let apart = now.duration_since(other.heartbeat).unwrap_or_else(|error| error.duration());
    apart < QUIET
}

/// How old something is; `None` where it is gone or in use here.
fn age_of(
    store: &SharedStore,
    kind: SweptKind,
    folder: &OwnedFd,
    name: &str,
    now: SystemTime,
) -> io::Result<Option<Age>> {
    if is_in_use(store, kind, name) {
        return Ok(None);
    }
    let node = match FileNode::at(folder, name) {
        Ok(node) => node,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let head = match kind {
        // A record that cannot be read is as good as none.
        SweptKind::Job => open_folder(folder, name.as_bytes()).and_then(Head::read).ok().flatten(),
        SweptKind::Session => None,
    };
    let has_ended = head.as_ref().is_some_and(|head| head.status != CallStatus::Processing);
    let touched = if has_ended { node.modified.min(node.changed) } else { node.touched(now) };
    let since = head.map_or(touched, |head| head.created_at);
    Ok(Some(Age { since, touched, has_ended, mark: node.modified }))
}

fn is_in_use(store: &SharedStore, kind: SweptKind, name: &str) -> bool {
    match kind {
        SweptKind::Job => Uuid::try_parse(name).is_ok_and(|id| store.in_use().contains(&id)),
        SweptKind::Session => store.workspaces().is_in_use(name),
    }
}

/// Removes a job or a session's space; `false` where somebody else did or began to use it.
fn take_away(store: &SharedStore, kind: SweptKind, name: &str, seen: Age) -> io::Result<bool> {
    let folder = match kind {
        SweptKind::Job => store.root.fd().try_clone()?,
        SweptKind::Session => store.root.folder(SESSIONS)?,
    };
    if is_in_use(store, kind, name) {
        return Ok(false);
    }
    // What is moved aside may have to be put back, so nobody may touch it before that is decided.
    let trash = trash::hold(&store.root)?;
    let aside = {
        // Held, so that nobody here begins to use the session in between.
        let mut workspaces = store.workspaces();
        if kind == SweptKind::Session && workspaces.is_in_use(name) {
            return Ok(false);
        }
        workspaces.forget(name);
        throw_away(&store.root, &folder, name)
    };
    let aside = match aside {
        Ok(aside) => aside,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // Another bridge may have begun to use it between our look and the move, which itself changes
    // only the other time.
    if let Ok(node) = FileNode::at(&trash, &aside)
        && node.modified != seen.mark
        && renameat(&trash, &aside, &folder, name).is_ok()
    {
        return Ok(false);
    }
    drop(trash);
    remove_tree(store.root.folder(TRASH)?, &aside, Instant::now() + PATIENCE)?;
    Ok(true)
}

/// Removes what was moved aside before and is still there.
fn empty_trash(store: &SharedStore, swept: &mut Swept) {
    let names = trash::hold(&store.root).and_then(names_in);
    let found = names.and_then(|names| Ok((names, store.root.folder(TRASH)?)));
    let (names, trash) = match found {
        Ok(found) => found,
        Err(error) => return swept.fail(TRASH, &error),
    };
    for name in names.iter().filter(|name| is_job_name(name)) {
        if let Err(error) = remove_tree(&trash, name, Instant::now() + PATIENCE) {
            swept.fail(&format!("{TRASH}/{name}"), &error);
        }
    }
}

/// Removes the halves of records that a killed bridge left beside the files of sessions. Those of jobs go
/// with their jobs.
fn remove_halves(store: &SharedStore, now: SystemTime) -> io::Result<()> {
    let sessions = store.root.folder(SESSIONS)?;
    for name in names_in(&sessions)?.iter().filter(|name| is_workspace_name(name)) {
        // Another bridge may have collected it.
        if let Ok(folder) = open_folder(&sessions, name.as_bytes()) {
            remove_unfinished(&folder, now)?;
        }
    }
    Ok(())
}

/// Removes journals that have expired, unless a bridge still writes to them.
fn remove_journals(store: &SharedStore, now: SystemTime) -> io::Result<()> {
    let alive = others(&store.root, store.instance.as_ref())?;
    let ours = store.instance.as_ref().map(|instance| instance.id().to_string());
    let folder = store.root.folder(JOURNAL)?;
    for name in names_in(&folder)? {
        let Some(owner) = journal::owner_of(&name) else { continue };
        let is_alive = ours.as_deref() == Some(owner) || alive.iter().any(|it| it.id == owner);
        if is_alive && !journal::is_older(&name) {
            continue;
        }
        if let Ok(node) = FileNode::at(&folder, &name)
            && now.duration_since(node.modified).is_ok_and(|age| age >= store.options.expiry)
        {
            match unlinkat(&folder, &name, AtFlags::empty()) {
                // Or another bridge did.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! What this system gives: tried in a process of its own, which ends after it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;

use super::calls::Filters;
use super::namespaces::{self, IPC, MOUNTS, NETWORK, Namespaces, UserMaps};
use super::scarce::Score;
use super::{landlock, mounts, user};
use crate::cgroup::Place;
use crate::confinement::User;
use crate::support::Support;
use crate::unix;

/// What the process says when something worked. It may be killed at the next.
const USER_NAMESPACE: u8 = 1;
const OWN_NETWORK: u8 = 2;
const OWN_IPC: u8 = 3;
const OWN_MOUNTS: u8 = 4;
const OWN_PROC: u8 = 5;
const OTHER_USER: u8 = 6;
const FILTER: u8 = 7;

/// What was prepared before any child.
#[derive(Debug, Default)]
pub(super) struct Tools {
    pub(super) cgroups: Option<Place>,
    pub(super) namespaces: Namespaces,
    pub(super) filters: Option<Filters>,
    pub(super) score: Score,
}

/// Looks what there is. Forks for a moment, so there must be no threads yet.
pub(super) fn look() -> (Support, Tools) {
    let filters = Filters::new();
    let maps = UserMaps::of_this_process();
    let words = try_all(&filters, &maps);
    let worked = |word: u8| words.contains(&word);
    let kind = |word: u8, kind: c_int| if worked(word) { kind } else { 0 };
    let namespaces = Namespaces {
        kinds: kind(OWN_NETWORK, NETWORK) | kind(OWN_IPC, IPC) | kind(OWN_MOUNTS, MOUNTS),
        user: worked(USER_NAMESPACE).then_some(maps),
    };
    let cgroups = Place::look();
    let support = Support {
        landlock_abi: landlock::abi(),
        seccomp: worked(FILTER),
        network_namespace: namespaces.has(NETWORK),
        ipc_namespace: namespaces.has(IPC),
        own_mounts: namespaces.has(MOUNTS),
        own_proc: worked(OWN_PROC),
        root: worked(OTHER_USER),
        cgroup: cgroups.as_ref().map(Place::support),
    };
    (support, Tools { cgroups, namespaces, filters: Some(filters), score: Score::look() })
}

/// Tries all in a new process, and gives its words. None when there can be no process: then the
/// spawner is not going to be one either.
fn try_all(filters: &Filters, maps: &UserMaps) -> Vec<u8> {
    let Ok((ear, mouth)) = unix::pipe() else { return Vec::new() };
    // SAFETY: the new process only makes system calls, and leaves without running anything else
    // of this one.
    match unix::check(unsafe { libc::fork() }) {
        Ok(0) => {
            try_here(&mouth, filters, maps);
            // SAFETY: as above.
            unsafe { libc::_exit(0) }
        }
        Ok(pid) => {
            drop(mouth);
            let mut words = Vec::new();
            let mut word = [0];
            // Its words and not its exit count: who ignores the end of children gets no exit.
            while let Ok(1) = unix::read(ear.as_fd(), &mut word) {
                words.push(word[0]);
            }
            unix::reap(pid);
            words
        }
        Err(_) => Vec::new(),
    }
}

/// Each step may leave this process with less, so the order matters.
fn try_here(mouth: &OwnedFd, filters: &Filters, maps: &UserMaps) {
    let say = |word: u8| {
        // SAFETY: writes one byte that is there. If nobody reads it, nobody asks.
        unsafe { libc::write(mouth.as_raw_fd(), [word].as_ptr().cast(), 1) };
    };
    // SAFETY: no memory is involved.
    let is_root = unsafe { libc::geteuid() } == 0;
    // Root could not become another user in there.
    if !is_root && maps.enter().is_ok() {
        say(USER_NAMESPACE);
    }
    if namespaces::enter(NETWORK).is_ok() {
        say(OWN_NETWORK);
    }
    if namespaces::enter(IPC).is_ok() {
        say(OWN_IPC);
    }
    if namespaces::enter(MOUNTS).is_ok() && mounts::keep_inside().is_ok() {
        if is_root && mounts::mount_proc().is_ok() {
            say(OWN_PROC);
        }
        if mounts::keep_read_only_but(std::iter::empty()).is_ok() {
            say(OWN_MOUNTS);
        }
    }
    if is_root && user::become_user(User { uid: 65_534, gid: 65_534 }).is_ok() {
        say(OTHER_USER);
    }
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if filters.choose(true, true).is_some_and(|filter| filter.install().is_ok()) {
        say(FILTER);
    }
}

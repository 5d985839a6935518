//! What a child may not do: set once in the spawner where children inherit it, else in each child
//! between fork and exec.
//!
//! In a child the order matters: what needs privileges comes before they are given up, and what
//! would hinder a later step comes after it.

mod limits;

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod scarce;
#[cfg(target_os = "linux")]
mod user;

use libc::{c_int, pid_t};

use crate::cgroup::Fresh;
use crate::command::Packed;
#[cfg(target_os = "linux")]
use crate::confinement::Restriction;
use crate::frame::{Number, Step};
use crate::support::Support;

#[cfg(target_os = "linux")]
use self::probe::Tools;

/// What the system gives to confine children with, and what was prepared for it.
#[derive(Debug, Default)]
pub(crate) struct Means {
    pub(crate) support: Support,
    /// What the spawner gave up, for trusted children to have.
    pub(crate) ordinary: Ordinary,
    #[cfg(target_os = "linux")]
    tools: Tools,
}

/// What the program had that the spawner gives up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ordinary {
    umask: libc::mode_t,
    /// The limit of core dumps: soft, then hard.
    core: Option<(libc::rlim_t, libc::rlim_t)>,
}

impl Means {
    /// The cgroup for a child, if it is to have one.
    pub(crate) fn fresh_cgroup(
        &mut self,
        child: Number,
        command: &Packed<'_>,
    ) -> Result<Option<Fresh>, (Step, c_int)> {
        #[cfg(target_os = "linux")]
        if let Some(cgroup) = &command.confinement.cgroup {
            let made = self
                .tools
                .cgroups
                .as_mut()
                .ok_or((Restriction::Cgroup, libc::ENODEV))
                .and_then(|place| Fresh::make(place, child, &command.limits, cgroup));
            return match made {
                Ok(fresh) => Ok(Some(fresh)),
                Err((restriction, error)) => Err((Step::Restrict(restriction), error)),
            };
        }
        let _ = (child, command);
        Ok(None)
    }

    /// Lets the system end this child before the program, when memory is scarce.
    pub(crate) fn let_go_first(&self, pid: pid_t) {
        #[cfg(target_os = "linux")]
        self.tools.score.give(pid);
        #[cfg(not(target_os = "linux"))]
        let _ = pid;
    }

    /// Removes the cgroups of spawners that were killed.
    pub(crate) fn sweep(&self) {
        #[cfg(target_os = "linux")]
        if let Some(place) = &self.tools.cgroups {
            place.sweep();
        }
    }

    /// Looks what there is, by trying. Forks for a moment, so there must be no threads yet.
    pub(crate) fn look() -> Self {
        #[cfg(target_os = "linux")]
        {
            let (support, tools) = probe::look();
            Self { support, ordinary: Ordinary::default(), tools }
        }
        #[cfg(not(target_os = "linux"))]
        Self::default()
    }
}

/// Keeps other users' processes, and other processes of this user, from looking into this one.
///
/// To be called first in a program that holds secrets and starts children: a child of the same
/// user could otherwise read the environment and memory of the program through `/proc`. There are
/// no core dumps then, and no debugger can be attached but by root.
///
/// Outside of Linux it only turns off core dumps.
pub fn harden_worker() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls without memory but `none`, which they only read. None of them can fail
    // in a way that is worth not starting for: lowering a limit is always allowed.
    unsafe {
        // A core dump would write secrets into a file.
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Restricts the spawner, and gives what it had before.
pub(crate) fn confine_spawner() -> Ordinary {
    let mut core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls without memory but `core`, which is written or read. Lowering a limit is
    // always allowed.
    unsafe {
        let is_known = libc::getrlimit(libc::RLIMIT_CORE, &raw mut core) == 0;
        // The hard limit stays: what it loses, a trusted child could not get back.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: core.rlim_max };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        let umask = libc::umask(0o077);
        Ordinary { umask, core: is_known.then_some((core.rlim_cur, core.rlim_max)) }
    }
}

/// Restricts a child as every child is that is not trusted. Runs between fork and exec.
pub(crate) fn harden_child(command: &Packed<'_>, means: &Means) {
    let core = if command.trusted { means.ordinary.core } else { Some((0, 0)) };
    // SAFETY: plain calls without memory but `limit`, which is only read. They cannot fail: a limit is
    // lowered, or raised no higher than it may be.
    unsafe {
        if let Some((rlim_cur, rlim_max)) = core {
            let limit = libc::rlimit { rlim_cur, rlim_max };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        }
        if command.trusted {
            libc::umask(means.ordinary.umask);
        }
        // What confines a child holds only for one that cannot gain privileges.
        #[cfg(target_os = "linux")]
        if !(command.trusted && command.keeps_capabilities()) {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        }
    }
}

/// The first half of restricting a child, which has its streams: where it is and whose. Runs
/// between fork and exec: system calls only, no allocation, no locks.
pub(crate) fn settle_child(
    command: &Packed<'_>,
    means: &Means,
    cgroup: Option<&Fresh>,
) -> Result<(), (Step, c_int)> {
    #[cfg(target_os = "linux")]
    return linux::settle_child(command, means, cgroup);
    #[cfg(not(target_os = "linux"))]
    {
        // What is not supported is refused before it gets here; this is the second lock.
        let _ = (means, cgroup);
        if command.keeps_capabilities() {
            return Ok(());
        }
        Err((Step::Restrict(crate::Restriction::Files), libc::ENOSYS))
    }
}

/// The second half, which leaves it little: what it may use, reach and call.
pub(crate) fn confine_child(command: &Packed<'_>, means: &Means) -> Result<(), (Step, c_int)> {
    #[cfg(target_os = "linux")]
    linux::keep_to_files(command, means)?;
    limits::limit(&command.limits, command.confinement.cgroup.is_some())?;
    #[cfg(target_os = "linux")]
    linux::refuse_calls(command, means)?;
    #[cfg(not(target_os = "linux"))]
    let _ = means;
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use libc::c_int;

    use super::namespaces::{IPC, MOUNTS, NETWORK};
    use super::{Means, landlock, mounts, user};
    use crate::cgroup::Fresh;
    use crate::command::Packed;
    use crate::confinement::{Network, Restriction};
    use crate::frame::Step;

    pub(super) fn settle_child(
        command: &Packed<'_>,
        means: &Means,
        cgroup: Option<&Fresh>,
    ) -> Result<(), (Step, c_int)> {
        let failed = |restriction| move |error| (Step::Restrict(restriction), error);
        if let Some(cgroup) = cgroup {
            cgroup.enter().map_err(failed(Restriction::Cgroup))?;
        }
        enter_namespaces(command, means)?;
        if command.keeps_capabilities() {
            return Ok(());
        }
        if let Some(user) = command.confinement.user {
            user::give_streams(user);
            user::become_user(user).map_err(failed(Restriction::User))?;
        }
        user::drop_capabilities().map_err(failed(Restriction::Capabilities))
    }

    /// Its own network, if it is to have none; its own table of shared memory; its own view of files.
    fn enter_namespaces(command: &Packed<'_>, means: &Means) -> Result<(), (Step, c_int)> {
        let failed = |restriction| move |error| (Step::Restrict(restriction), error);
        let (support, namespaces) = (&means.support, &means.tools.namespaces);
        let network = if command.confinement.network == Network::None { NETWORK } else { 0 };
        let ipc = if command.confinement.deny_calls { IPC } else { 0 };
        namespaces
            .enter(network | ipc | if command.files.is_some() { MOUNTS } else { 0 })
            .map_err(failed(if network == 0 {
                Restriction::Calls
            } else {
                Restriction::Network
            }))?;
        let Some(files) = command.files.as_ref().filter(|_| support.own_mounts) else {
            return Ok(());
        };
        let own_places = files.write.iter().chain(&files.write_if_there).copied();
        let own_proc = || if support.own_proc { mounts::mount_proc() } else { Ok(()) };
        mounts::keep_inside()
            .and_then(|()| own_proc())
            .and_then(|()| mounts::keep_read_only_but(own_places))
            .map_err(failed(Restriction::Files))
    }

    pub(super) fn keep_to_files(command: &Packed<'_>, means: &Means) -> Result<(), (Step, c_int)> {
        let Some(files) = &command.files else { return Ok(()) };
        let Some(abi) = means.support.landlock_abi else {
            return Err((Step::Restrict(Restriction::Files), libc::ENOSYS));
        };
        // All of a `/proc` that has nobody else in it.
        let all_of_proc = means.support.own_proc;
        landlock::keep_to(files, all_of_proc, abi, is_offline_by_filter(command, means))
    }

    pub(super) fn refuse_calls(command: &Packed<'_>, means: &Means) -> Result<(), (Step, c_int)> {
        let deny_calls = command.confinement.deny_calls;
        let offline = is_offline_by_filter(command, means);
        if !deny_calls && !offline {
            return Ok(());
        }
        let restriction = if deny_calls { Restriction::Calls } else { Restriction::Network };
        let filter = means.tools.filters.as_ref().and_then(|it| it.choose(deny_calls, offline));
        let installed = filter.ok_or(libc::ENOSYS).and_then(|filter| filter.install());
        installed.map_err(|error| (Step::Restrict(restriction), error))
    }

    /// Whether the child has no network because it can open no sockets for one.
    fn is_offline_by_filter(command: &Packed<'_>, means: &Means) -> bool {
        command.confinement.network == Network::None && !means.support.network_namespace
    }
}

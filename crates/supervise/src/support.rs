//! What this system can keep a child to, as found out before the spawner is forked.

use crate::command::Command;
use crate::confinement::{Network, Restriction};

/// What this kernel and these privileges give. Looked up once, by trying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Support {
    /// The version of Landlock, which keeps a child to its files; 3 or newer is needed.
    pub landlock_abi: Option<u32>,
    /// Whether calls can be refused.
    pub seccomp: bool,
    /// Whether a child can have a network of its own, with nothing in it but its loopback. Where
    /// not, [`Network::None`] refuses it network sockets, by seccomp.
    pub network_namespace: bool,
    /// Whether a child whose calls are refused also has its own table of System V and POSIX objects. No
    /// restriction depends on it: the calls that would use them are refused anyway.
    pub ipc_namespace: bool,
    /// Whether a child that is kept to its files sees all others as read-only, so that it cannot change
    /// their modes and times either. No restriction depends on it.
    pub own_mounts: bool,
    /// Whether what a child starts can read its own `/proc/self` as well, when the child is kept
    /// to its files. No restriction depends on it.
    pub own_proc: bool,
    /// Whether a child can be another user.
    pub root: bool,
    /// What a cgroup of its own can limit, where there can be one.
    pub cgroup: Option<CgroupSupport>,
}

/// What a cgroup can limit here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupSupport {
    /// 1 or 2.
    pub version: u8,
    /// Whether memory can be limited.
    pub memory: bool,
    /// Whether the number of processes can be limited.
    pub processes: bool,
    /// Whether the share of the processor can be limited.
    pub cpu: bool,
}

/// Without it, a child could empty files it may not write to.
pub(crate) const OLDEST_LANDLOCK_ABI: u32 = 3;

impl Support {
    /// Each restriction of `command` that cannot be given here. [`Spawner::spawn`] refuses a
    /// command with any.
    ///
    /// [`Spawner::spawn`]: crate::Spawner::spawn
    pub fn missing(&self, command: &Command) -> Vec<Restriction> {
        let (limits, confinement) = (&command.limits, &command.confinement);
        let mut missing = Vec::new();
        let mut need = |is_given: bool, restriction: Restriction| {
            if !is_given {
                missing.push(restriction);
            }
        };
        if confinement.files.is_some() {
            let is_given = self.landlock_abi.is_some_and(|abi| abi >= OLDEST_LANDLOCK_ABI);
            need(is_given, Restriction::Files);
        }
        if confinement.deny_calls {
            need(self.seccomp, Restriction::Calls);
        }
        if confinement.network == Network::None {
            need(self.network_namespace || self.seccomp, Restriction::Network);
        }
        if let Some(user) = confinement.user {
            need(self.root && user.uid != 0 && user.gid != 0, Restriction::User);
        }
        match (&confinement.cgroup, self.cgroup) {
            (Some(_), None) => need(false, Restriction::Cgroup),
            (Some(wanted), Some(given)) => {
                need(given.memory || limits.memory_bytes.is_none(), Restriction::Memory);
                need(given.processes || limits.processes.is_none(), Restriction::Processes);
                need(given.cpu || wanted.cpu_percent.is_none(), Restriction::Cpu);
            }
            (None, _) => {
                let is_linux = cfg!(target_os = "linux");
                need(is_linux || limits.memory_bytes.is_none(), Restriction::Memory);
                // The limit is one of the user, and root has none. With the user of the spawner,
                // it would count the spawner, its program and every other child.
                let has_own_user = confinement.user.is_some() && self.root;
                need(has_own_user || limits.processes.is_none(), Restriction::Processes);
            }
        }
        missing
    }

    /// Takes what cannot be given here out of `command`, and gives what that was. For those who
    /// would rather have less than nothing.
    pub fn soften(&self, command: &mut Command) -> Vec<Restriction> {
        let mut taken = Vec::new();
        // Without a cgroup or a user, what relied on it is in the next look.
        loop {
            let missing = self.missing(command);
            if missing.is_empty() {
                return taken;
            }
            for restriction in &missing {
                let confinement = &mut command.confinement;
                match restriction {
                    Restriction::Files => confinement.files = None,
                    Restriction::Calls => confinement.deny_calls = false,
                    Restriction::Network => confinement.network = Network::Open,
                    Restriction::User => confinement.user = None,
                    Restriction::Cgroup => confinement.cgroup = None,
                    Restriction::Memory => command.limits.memory_bytes = None,
                    Restriction::Processes => command.limits.processes = None,
                    Restriction::Cpu => {
                        if let Some(cgroup) = &mut confinement.cgroup {
                            cgroup.cpu_percent = None;
                        }
                    }
                    // Never missing before it is tried.
                    Restriction::Capabilities => {}
                }
            }
            taken.extend(missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cgroup, Confinement, FileRules, Limits, User};

    fn everything() -> Command {
        Command {
            limits: Limits {
                memory_bytes: Some(1 << 30),
                processes: Some(50),
                ..Limits::default()
            },
            confinement: Confinement {
                files: Some(FileRules::default()),
                deny_calls: true,
                network: Network::None,
                user: Some(User { uid: 60_000, gid: 60_000 }),
                cgroup: Some(Cgroup { cpu_percent: Some(50) }),
            },
            ..Command::new("/bin/true")
        }
    }

    fn full() -> Support {
        Support {
            landlock_abi: Some(3),
            seccomp: true,
            network_namespace: true,
            ipc_namespace: true,
            own_mounts: true,
            own_proc: true,
            root: true,
            cgroup: Some(CgroupSupport { version: 2, memory: true, processes: true, cpu: true }),
        }
    }

    fn check(support: &Support, command: &Command, missing: &[Restriction]) {
        assert_eq!(support.missing(command), missing, "{support:?}");
        let mut softened = command.clone();
        let taken = support.soften(&mut softened);
        assert!(missing.iter().all(|restriction| taken.contains(restriction)), "{taken:?}");
        assert_eq!(support.missing(&softened), []);
    }

    #[test]
    fn a_basic_child_needs_nothing() {
        check(&Support::default(), &Command::new("/bin/true"), &[]);
    }

    #[test]
    fn a_system_that_has_all_gives_all() {
        check(&full(), &everything(), &[]);
    }

    #[test]
    fn a_system_that_has_nothing_says_each() {
        use Restriction::{Calls, Cgroup, Files, Network, User};
        check(&Support::default(), &everything(), &[Files, Calls, Network, User, Cgroup]);
        let mut command = everything();
        let taken = Support::default().soften(&mut command);
        assert!(taken.contains(&Restriction::Processes), "{taken:?}");
        assert_eq!(command.confinement, Confinement::default());
    }

    #[test]
    fn a_landlock_that_lets_files_be_emptied_is_not_enough() {
        let support = Support { landlock_abi: Some(2), ..full() };
        check(&support, &everything(), &[Restriction::Files]);
    }

    #[test]
    fn a_network_is_refused_by_either_means() {
        check(&Support { network_namespace: false, ..full() }, &everything(), &[]);
        let support = Support { seccomp: false, ..full() };
        check(&support, &everything(), &[Restriction::Calls]);
    }

    #[test]
    fn processes_are_counted_by_a_cgroup_or_for_an_own_user() {
        let mut command = everything();
        command.confinement.cgroup = None;
        check(&full(), &command, &[]);
        command.confinement.user = None;
        check(&full(), &command, &[Restriction::Processes]);
    }

    #[test]
    fn root_is_no_user_of_its_own() {
        for (uid, gid) in [(0, 60_000), (60_000, 0)] {
            let mut command = everything();
            command.confinement.user = Some(User { uid, gid });
            check(&full(), &command, &[Restriction::User]);
        }
    }
}

//! What a child may do, as plain data: its files, its calls, its network, its user, its cgroup.
//!
//! Nothing here acts. Whether the system can keep a child to it is in `support`; the spawner
//! applies it, in `confine`.

use std::fmt;
use std::path::PathBuf;

/// What a child is kept from, beyond what every child is. The default keeps it from nothing more.
///
/// A child that is kept from anything here, a cgroup apart, has no capabilities either, also when
/// its user is root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The only files it may reach (Landlock). Processes outside cannot be signalled or looked
    /// into either, where the kernel knows how (signals since Linux 6.12).
    pub files: Option<FileRules>,
    /// Refuses the calls that look into other processes, mount, load, or change namespaces, and
    /// others that no server needs and holes were found in (seccomp).
    pub deny_calls: bool,
    /// Which network it has.
    pub network: Network,
    /// Whom it runs as, and not as the user of the spawner.
    pub user: Option<User>,
    /// Gives it a fresh cgroup, which keeps the memory and process limits of all it starts
    /// together, and is removed after it.
    pub cgroup: Option<Cgroup>,
}

impl Confinement {
    /// Whether a child keeps the capabilities of the spawner, if that has any.
    pub(crate) fn keeps_capabilities(&self) -> bool {
        let Self { files, deny_calls, network, user, cgroup: _ } = self;
        files.is_none() && !deny_calls && *network == Network::Open && user.is_none()
    }
}

/// The files a child may reach: each path and all below it. Symbolic links give nothing: what
/// counts is where a file really is.
///
/// Every path of `read` and `write` must exist when the child starts. It may always read its own `/proc/self`, and what
/// it starts may do so too where the spawner can mount (as root). Elsewhere what it starts cannot;
/// adding `/proc` changes that at the price of showing it the command lines of all processes,
/// though never their environment or memory.
///
/// What this does not keep it from: learning that a file outside exists and how large it is,
/// following links, changing modes and times of files it owns, and connecting to a socket file
/// outside (the last until Linux has Landlock ABI 9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRules {
    /// What it may read, list and execute.
    pub read: Vec<PathBuf>,
    /// What it may also write, create, remove, truncate, and rename within.
    pub write: Vec<PathBuf>,
    /// The same as `read`, for what may be gone when the child starts.
    pub read_if_there: Vec<PathBuf>,
    /// The same as `write`, for what may be gone when the child starts.
    pub write_if_there: Vec<PathBuf>,
}

impl FileRules {
    /// What programs need of a system: its programs and libraries, the public part of its
    /// configuration, its time zones, certificates and fonts, and the harmless devices. Only what
    /// exists is named.
    ///
    /// Homes, `/tmp`, `/var`, `/run` and `/dev/shm` are not in it, nor what `/etc` has beyond the
    /// well-known names: the configuration of this very program may be there.
    pub fn system() -> Self {
        let existing = |paths: &[&str]| -> Vec<PathBuf> {
            paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
        };
        let mut read = existing(&SYSTEM_READ);
        read.extend(existing(&SYSTEM_ETC));
        read.extend(existing(&SYSTEM_FACTS));
        Self { read, write: existing(&SYSTEM_WRITE), ..Self::default() }
    }

    /// All paths, in the order in which they are packed.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let Self { read, write, read_if_there, write_if_there } = self;
        read.iter().chain(write).chain(read_if_there).chain(write_if_there)
    }
}

/// Where programs and libraries are.
const SYSTEM_READ: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/dev/urandom",
    "/dev/random",
];

/// What libraries and launchers of large programs read below `/etc`. Not all of it: some of the rest is secret.
const SYSTEM_ETC: [&str; 43] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/ld-musl-x86_64.path",
    "/etc/ld-musl-aarch64.path",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/networks",
    "/etc/ethers",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.conf",
    "/etc/locale.alias",
    "/etc/default/locale",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust",
    "/etc/crypto-policies",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/libreoffice",
    "/etc/chromium.d",
    "/etc/mime.types",
    "/etc/magic",
    "/etc/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/inputrc",
];

/// What the kernel tells anybody about the machine, and nothing about its processes.
const SYSTEM_FACTS: [&str; 19] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/crypto",
    "/proc/sys/fs/file-max",
    "/proc/sys/fs/nr_open",
    "/proc/sys/fs/pipe-max-size",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/transparent_hugepage",
];

/// The devices every program may write to.
const SYSTEM_WRITE: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// Which network a child has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// That of the spawner.
    #[default]
    Open,
    /// None at all: neither TCP nor UDP nor anything else leaves the machine or reaches it.
    ///
    /// Where the system allows a network namespace, the child has a loopback of its own; elsewhere
    /// it can open no network sockets.
    None,
}

/// A user, by number. It needs no name on the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user; never 0.
    pub uid: u32,
    /// The only group it has; never 0.
    pub gid: u32,
}

/// What a cgroup keeps beside the memory and processes of [`Limits`](crate::Limits).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// How much computing in a second, in hundredths of one processor: 150 is one and a half.
    pub cpu_percent: Option<u32>,
}

/// A restriction that can be asked for and not always be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Restriction {
    /// [`Confinement::files`].
    Files,
    /// [`Confinement::deny_calls`].
    Calls,
    /// [`Network::None`].
    Network,
    /// [`Confinement::user`].
    User,
    /// [`Limits::memory_bytes`](crate::Limits::memory_bytes).
    Memory,
    /// [`Limits::processes`](crate::Limits::processes).
    Processes,
    /// [`Cgroup::cpu_percent`].
    Cpu,
    /// [`Confinement::cgroup`].
    Cgroup,
    /// Giving up the capabilities of root, which goes with the others.
    Capabilities,
}

impl Restriction {
    /// What would have to be different for it to be possible.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Files => "it needs Linux 6.2 or newer with Landlock (ABI 3) enabled at boot",
            Self::Calls => "it needs a Linux kernel with seccomp filters",
            Self::Network => "it needs Linux with network namespaces or seccomp filters",
            Self::User => "it needs a start as root, and a user and group other than 0",
            Self::Memory => "it needs Linux, and for a whole tree a writable memory cgroup",
            Self::Processes => "it needs a writable pids cgroup, or a user of its own",
            Self::Cpu => "it needs a writable cpu cgroup",
            Self::Cgroup => "it needs Linux and a cgroup this program may write to",
            Self::Capabilities => "it needs a Linux kernel that lets go of them",
        }
    }
}

impl fmt::Display for Restriction {
    /// As the object of a sentence: "keep it to its files".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files => "keep it to its files",
            Self::Calls => "refuse it dangerous system calls",
            Self::Network => "keep it off the network",
            Self::User => "run it as a user of its own",
            Self::Memory => "limit its memory",
            Self::Processes => "limit its processes",
            Self::Cpu => "limit its share of the processor",
            Self::Cgroup => "give it a cgroup of its own",
            Self::Capabilities => "take the capabilities of root from it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_has_programs_and_no_secrets() {
        let FileRules { read, write, .. } = FileRules::system();
        assert!(read.contains(&"/usr".into()), "{read:?}");
        assert!(write.contains(&"/dev/null".into()), "{write:?}");
        for path in ["/", "/etc", "/home", "/root", "/tmp", "/var", "/run", "/proc", "/dev"] {
            assert!(!read.contains(&path.into()) && !write.contains(&path.into()), "{path}");
        }
        assert!(read.iter().chain(&write).all(|path| path.exists()));
    }

    #[test]
    fn only_a_confined_child_loses_its_capabilities() {
        let basic = Confinement::default();
        let check = |confinement: Confinement, keeps: bool| {
            assert_eq!(confinement.keeps_capabilities(), keeps, "{confinement:?}");
        };
        check(basic.clone(), true);
        check(Confinement { cgroup: Some(Cgroup::default()), ..basic.clone() }, true);
        check(Confinement { deny_calls: true, ..basic.clone() }, false);
        check(Confinement { network: Network::None, ..basic.clone() }, false);
        check(Confinement { files: Some(FileRules::default()), ..basic.clone() }, false);
        check(Confinement { user: Some(User { uid: 1, gid: 1 }), ..basic }, false);
    }
}

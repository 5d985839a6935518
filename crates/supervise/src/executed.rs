//! A spawner that is run and not forked: an executable of its own, at the other end of a socket.
//!
//! A library cannot fork before its program has threads. It runs an executable instead, which has none
//! when it calls [`serve_stdin`]. The executable first says which version it is and what it can keep
//! children to, in one line; from then on both ways are the same.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{c_char, c_int, c_short, pid_t};

use crate::confine::Means;
use crate::exit::Exit;
use crate::support::{CgroupSupport, Support};
use crate::{spawner_process, unix};

/// Why no spawner could be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There are no sockets, mostly because too many descriptors are open.
    #[error("no sockets for the spawner process")]
    Sockets(#[source] io::Error),
    /// The executable is missing, may not be executed, or is none.
    #[error("`{}` cannot be executed", program.display())]
    Exec {
        /// The executable.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The executable ran, and is no spawner.
    #[error("`{}` is no pontoon of version {VERSION}: it {what}", program.display())]
    Stranger {
        /// The executable.
        program: PathBuf,
        /// What it did.
        what: String,
    },
    /// The executable is a spawner of another version.
    #[error("`{}` is pontoon {theirs}, and version {VERSION} is needed", program.display())]
    OtherVersion {
        /// The executable.
        program: PathBuf,
        /// Its version.
        theirs: String,
    },
}

/// Both sides have to be of the same version, and to write orders in the same way. The second number is another one
/// whenever that changes.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-2");

/// How the line begins that a spawner says first.
const GREETING: &str = "pontoon-spawner";

/// How long an executable may take to say its line. On a busy machine it needs some milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than any line of a spawner.
const MAX_LINE_BYTES: usize = 256;

/// Runs the executable as a spawner, and gives the socket to it, its pid and what it supports.
pub(crate) fn run(
    program: &Path,
    args: &[OsString],
) -> Result<(OwnedFd, pid_t, Support), RunError> {
    let (ours, theirs) = unix::socket_pair().map_err(RunError::Sockets)?;
    let failed = |source| RunError::Exec { program: program.to_owned(), source };
    let newborn = Newborn(execute(program, args, &theirs).map_err(failed)?);
    drop(theirs);
    let stranger = |what: String| RunError::Stranger { program: program.to_owned(), what };
    let line = match read_line(&ours, Instant::now() + PATIENCE) {
        Ok(Some(line)) => line,
        Ok(None) => {
            return Err(stranger(match newborn.end() {
                Exit::Signal(libc::SIGKILL) => "closed its input without a word".to_owned(),
                exit => format!("{exit} without a word"),
            }));
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(stranger(format!("said nothing for {} s", PATIENCE.as_secs())));
        }
        Err(error) => return Err(stranger(format!("answers something else ({error})"))),
    };
    let other = || stranger("answers something else".to_owned());
    let words: Vec<&str> = line.split(' ').collect();
    let [GREETING, theirs, support @ ..] = words.as_slice() else { return Err(other()) };
    if *theirs != VERSION {
        let theirs = (*theirs).to_owned();
        return Err(RunError::OtherVersion { program: program.to_owned(), theirs });
    }
    let support = decode_support(support).ok_or_else(other)?;
    let pid = newborn.0;
    std::mem::forget(newborn);
    Ok((ours, pid, support))
}

/// Becomes the spawner of the program at the other end of standard input, which has run this
/// executable by [`Spawner::run`](crate::Spawner::run). Returns only if there is none.
///
/// To be called first in `main`, while there are no threads.
///
/// # Errors
///
/// When standard input is no such socket.
pub fn serve_stdin() -> io::Result<Infallible> {
    unix::block_signals(&unix::all_signals());
    let socket = socket_at_stdin()?;
    // SAFETY: no memory is involved but a constant. A directory that the program is in could otherwise
    // not be unmounted.
    unix::check(unsafe { libc::chdir(c"/".as_ptr()) })?;
    let means = Means::look();
    let line = format!("{GREETING} {VERSION} {}\n", encode_support(&means.support));
    if unix::send(socket.as_fd(), line.as_bytes(), &[])? < line.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    spawner_process::run(socket, means)
}

/// A process that has not said yet what it is. Dropping it ends it.
struct Newborn(pid_t);

impl Newborn {
    fn end(self) -> Exit {
        let exit = end(self.0);
        std::mem::forget(self);
        exit
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        end(self.0);
    }
}

/// Kills a process that leads its group, and reaps it.
fn end(pid: pid_t) -> Exit {
    let _ = unix::signal_group(pid, libc::SIGKILL);
    unix::reap(pid)
}

/// Runs an executable in a session of its own, with `socket` as its input, nowhere as its output, our
/// standard error, and every signal blocked, so that no Ctrl-C ends it before it can say so itself.
///
/// `posix_spawn` copies nothing of this process, however large that is, and is made for threads.
fn execute(program: &Path, args: &[OsString], socket: &OwnedFd) -> io::Result<pid_t> {
    let zero_ended = |bytes: &OsStr| CString::new(bytes.as_bytes()).map_err(io::Error::from);
    let mut argv = vec![zero_ended(program.as_os_str())?];
    for arg in args {
        argv.push(zero_ended(arg)?);
    }
    let mut env = Vec::new();
    for (name, value) in std::env::vars_os().filter(|(name, _)| is_needed_to_start(name)) {
        env.push(zero_ended(&[name.as_os_str(), value.as_os_str()].join(OsStr::new("=")))?);
    }
    let mut spawn = Spawn::new()?;
    let pointers = |strings: &[CString]| -> Vec<*mut c_char> {
        strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
    };
    let (arguments, environment) = (pointers(&argv), pointers(&env));
    let mut pid = 0;
    // SAFETY: each pointer is to a value made above that lives until after the calls: `spawn` was
    // initialised, the arrays end with a null pointer and their strings with a zero byte.
    unsafe {
        spawn.set_up(socket.as_raw_fd())?;
        result(libc::posix_spawn(
            &raw mut pid,
            argv[0].as_ptr(),
            spawn.actions.as_ptr(),
            spawn.attributes.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
        ))?;
    }
    Ok(pid)
}

/// Whether an executable, or the script around it, may need this variable before it is itself.
fn is_needed_to_start(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"PATH" || name.starts_with(b"LD_") || name.starts_with(b"DYLD_")
}

/// What `posix_spawn` is to do.
struct Spawn {
    actions: MaybeUninit<libc::posix_spawn_file_actions_t>,
    attributes: MaybeUninit<libc::posix_spawnattr_t>,
}

#[cfg(target_os = "macos")]
const NEW_SESSION: c_short = 0x0400;
#[cfg(not(target_os = "macos"))]
const NEW_SESSION: c_short = libc::POSIX_SPAWN_SETSID as c_short;

impl Spawn {
    fn new() -> io::Result<Self> {
        let (mut actions, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each call initialises what it is given, or fails.
        unsafe {
            result(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            if let Err(error) = result(libc::posix_spawnattr_init(attributes.as_mut_ptr())) {
                libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
                return Err(error);
            }
        }
        Ok(Self { actions, attributes })
    }

    /// # Safety
    ///
    /// `socket` must be open until after the spawn.
    unsafe fn set_up(&mut self, socket: RawFd) -> io::Result<()> {
        let (actions, attributes) = (self.actions.as_mut_ptr(), self.attributes.as_mut_ptr());
        let (null, signals) = (c"/dev/null".as_ptr(), unix::all_signals());
        // SAFETY: both were initialised, the path is a constant, and the set is copied.
        unsafe {
            result(libc::posix_spawn_file_actions_adddup2(actions, socket, 0))?;
            result(libc::posix_spawn_file_actions_addopen(actions, 1, null, libc::O_WRONLY, 0))?;
            let flags = NEW_SESSION | libc::POSIX_SPAWN_SETSIGMASK as c_short;
            result(libc::posix_spawnattr_setflags(attributes, flags))?;
            result(libc::posix_spawnattr_setsigmask(attributes, &raw const signals))
        }
    }
}

impl Drop for Spawn {
    fn drop(&mut self) {
        // SAFETY: both were initialised, and are not used again.
        unsafe {
            libc::posix_spawn_file_actions_destroy(self.actions.as_mut_ptr());
            libc::posix_spawnattr_destroy(self.attributes.as_mut_ptr());
        }
    }
}

/// The result of a call that returns its error.
fn result(error: c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// The one line that is said first, without its end; `None` when the other side ends before.
fn read_line(socket: &OwnedFd, deadline: Instant) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        unix::wait_readable(socket.as_fd(), deadline)?;
        let mut bytes = [0; MAX_LINE_BYTES];
        match unix::receive(socket.as_fd(), &mut bytes, &mut Vec::new()) {
            Ok(0) => return Ok(None),
            Ok(size) => line.extend(&bytes[..size]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            // It ended with something of ours unread, which cannot be, or was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            let text = String::from_utf8(line);
            return text.map(Some).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Takes the socket from standard input, where nothing is left of it.
fn socket_at_stdin() -> io::Result<OwnedFd> {
    let mut kind: c_int = 0;
    let mut size = libc::socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
    // SAFETY: the call writes one number of that size.
    unix::check(unsafe {
        let kind = (&raw mut kind).cast();
        libc::getsockopt(0, libc::SOL_SOCKET, libc::SO_TYPE, kind, &raw mut size)
    })?;
    if kind != libc::SOCK_STREAM {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the new descriptor is ours alone. The old one is replaced when the spawner settles in.
    unsafe { Ok(OwnedFd::from_raw_fd(unix::check(libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3))?)) }
}

/// What is supported, as numbers with spaces between.
fn encode_support(support: &Support) -> String {
    let Support { landlock_abi, seccomp, network_namespace, ipc_namespace, .. } = *support;
    let Support { own_mounts, own_proc, root, cgroup, .. } = *support;
    let CgroupSupport { version, memory, processes, cpu } = cgroup.unwrap_or_default();
    let facts = [seccomp, network_namespace, ipc_namespace, own_mounts, own_proc, root];
    let numbers = [landlock_abi.unwrap_or(0), u32::from(version)];
    let facts = facts.into_iter().chain([memory, processes, cpu]).map(u32::from);
    numbers.into_iter().chain(facts).map(|it| it.to_string()).collect::<Vec<_>>().join(" ")
}

/// `None` for words that [`encode_support`] does not make.
fn decode_support(words: &[&str]) -> Option<Support> {
    let [landlock, version, facts @ ..] = words else { return None };
    let fact = |word: &&str| match *word {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    let facts: Vec<bool> = facts.iter().map(fact).collect::<Option<_>>()?;
    let [facts @ .., memory, processes, cpu] = facts.as_slice() else { return None };
    let [seccomp, network_namespace, ipc_namespace, own_mounts, own_proc, root] = *facts else {
        return None;
    };
    let (landlock, version): (u32, u8) = (landlock.parse().ok()?, version.parse().ok()?);
    let (memory, processes, cpu) = (*memory, *processes, *cpu);
    let cgroup = (version > 0).then_some(CgroupSupport { version, memory, processes, cpu });
    let landlock_abi = (landlock > 0).then_some(landlock);
    Some(Support {
        landlock_abi,
        seccomp,
        network_namespace,
        ipc_namespace,
        own_mounts,
        own_proc,
        root,
        cgroup,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(support: &Support) {
        let line = encode_support(support);
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(decode_support(&words).as_ref(), Some(support), "{line}");
        assert_eq!(decode_support(&words[1..]), None);
    }

    #[test]
    fn what_is_supported_comes_over_as_it_is() {
        check(&Support::default());
        check(&Support { seccomp: true, own_proc: true, ..Support::default() });
        let cgroup = CgroupSupport { version: 2, processes: true, ..CgroupSupport::default() };
        check(&Support { landlock_abi: Some(7), cgroup: Some(cgroup), ..Support::default() });
        assert_eq!(decode_support(&["yes"; 11]), None);
        assert_eq!(decode_support(&[]), None);
    }
}

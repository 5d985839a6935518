//! Landlock: the only files a child may reach, and no process outside to signal or look into.
//!
//! All of it happens in the child, between fork and exec, so that a path on a file system that
//! hangs delays that child and no other.

use std::ffi::CStr;

use libc::{c_int, c_long};

use crate::command::PackedFiles;
use crate::confinement::Restriction;
use crate::frame::Step;
use crate::unix::errno;

// The numbers are from <linux/landlock.h>; `libc` does not have them.

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const RESOLVE_UNIX: u64 = 1 << 16;

const BIND_TCP: u64 = 1 << 0;
const CONNECT_TCP: u64 = 1 << 1;

const SCOPE_ABSTRACT_SOCKETS: u64 = 1 << 0;
const SCOPE_SIGNALS: u64 = 1 << 1;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: c_int = 1;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;

/// Devices are never made, whoever the child is.
const WRITE: u64 = READ
    | WRITE_FILE
    | TRUNCATE
    | IOCTL_DEV
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | RESOLVE_UNIX;

/// The rights that a path that is no directory can have.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX;

/// The version this kernel has, if it has Landlock at all.
pub(crate) fn abi() -> Option<u32> {
    let none = std::ptr::null::<RulesetAttr>();
    // SAFETY: with this flag the call takes no memory.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

#[repr(C)]
#[derive(Debug, PartialEq, Eq)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

impl RulesetAttr {
    /// All that a kernel with this version can refuse. What it does not know must be zero.
    fn for_abi(abi: u32, refuse_tcp: bool) -> Self {
        let since = |first: u32, rights: u64| if abi >= first { rights } else { 0 };
        let first =
            (WRITE & !(REFER | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX)) | MAKE_CHAR | MAKE_BLOCK;
        Self {
            handled_access_fs: since(1, first)
                | since(2, REFER)
                | since(3, TRUNCATE)
                | since(5, IOCTL_DEV)
                | since(9, RESOLVE_UNIX),
            handled_access_net: if refuse_tcp { since(4, BIND_TCP | CONNECT_TCP) } else { 0 },
            scoped: since(6, SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS),
        }
    }
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: c_int,
}

/// Keeps this process to `files`, and to all of `/proc` or its own place there. Runs between fork
/// and exec.
pub(crate) fn keep_to(
    files: &PackedFiles<'_>,
    all_of_proc: bool,
    abi: u32,
    refuse_tcp: bool,
) -> Result<(), (Step, c_int)> {
    const FILES: Step = Step::Restrict(Restriction::Files);
    let attr = RulesetAttr::for_abi(abi, refuse_tcp);
    // SAFETY: reads `attr`, of the size that is given.
    let ruleset = unsafe {
        let size = size_of::<RulesetAttr>();
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0)
    };
    if ruleset == -1 {
        return Err((FILES, errno()));
    }
    let handled = attr.handled_access_fs;
    let read = files.read.iter().map(|path| (*path, READ));
    let write = files.write.iter().map(|path| (*path, WRITE));
    for ((path, rights), place) in read.chain(write).zip(0..) {
        // Each rule takes its time, and one for all of it follows.
        if !(all_of_proc && path.to_bytes().starts_with(b"/proc/")) {
            let allowed = allow(ruleset, path, rights & handled);
            allowed.map_err(|error| (Step::FilePath(place), error))?;
        }
    }
    let read = files.read_if_there.iter().map(|path| (*path, READ));
    let write = files.write_if_there.iter().map(|path| (*path, WRITE));
    for (path, rights) in read.chain(write) {
        match allow(ruleset, path, rights & handled) {
            Ok(()) | Err(libc::ENOENT) => {}
            Err(error) => return Err((FILES, error)),
        }
    }
    let proc = if all_of_proc { c"/proc" } else { c"/proc/self" };
    allow(ruleset, proc, READ & handled).map_err(|error| (FILES, error))?;
    // SAFETY: no memory is involved; the descriptor is ours, and closed on exec like all others.
    if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) } == -1 {
        return Err((FILES, errno()));
    }
    Ok(())
}

/// Adds a rule for `path` and all below it.
fn allow(ruleset: c_long, path: &CStr, rights: u64) -> Result<(), c_int> {
    // SAFETY: plain system calls; all pointers are to values that live until after them. An
    // all-zero `stat` is valid. The descriptor is closed where it was opened.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        if fd == -1 {
            return Err(errno());
        }
        let mut stat: libc::stat = std::mem::zeroed();
        let mut result = c_long::from(libc::fstat(fd, &raw mut stat));
        if result == 0 {
            let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let rights = if is_directory { rights } else { rights & OF_FILES };
            let rule = PathBeneathAttr { allowed_access: rights, parent_fd: fd };
            let kind = RULE_PATH_BENEATH;
            result = libc::syscall(libc::SYS_landlock_add_rule, ruleset, kind, &raw const rule, 0);
        }
        let error = errno();
        libc::close(fd);
        if result == -1 { Err(error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_refuses_what_it_knows_and_no_more() {
        let check = |abi: u32, fs: u64, net: u64, scoped: u64| {
            let attr = RulesetAttr::for_abi(abi, true);
            let expected = RulesetAttr { handled_access_fs: fs, handled_access_net: net, scoped };
            assert_eq!(attr, expected, "ABI {abi}");
            assert_eq!(RulesetAttr::for_abi(abi, false).handled_access_net, 0);
        };
        check(1, 0x1fff, 0, 0);
        check(2, 0x3fff, 0, 0);
        check(3, 0x7fff, 0, 0);
        check(4, 0x7fff, 3, 0);
        check(5, 0xffff, 3, 0);
        check(6, 0xffff, 3, 3);
        check(8, 0xffff, 3, 3);
        check(9, 0x1_ffff, 3, 3);
        check(99, 0x1_ffff, 3, 3);
    }

    #[test]
    fn no_rule_allows_to_make_devices() {
        assert_eq!((READ | WRITE) & (MAKE_CHAR | MAKE_BLOCK), 0);
    }
}

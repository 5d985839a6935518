//! A child's own view of the file system: what it may not write cannot be changed in any way, and
//! `/proc` has itself and what it started in it.
//!
//! Landlock has no rights for modes, owners and times, so by it alone a child could change those of
//! every file of its user, and leave words there for others. Where the spawner may mount, or a user
//! namespace allows it, the child sees all of the system as read-only but for its own places.
//!
//! Landlock gives rights to places, and the place of a process in `/proc` is not known before the
//! process is. Giving all of `/proc` would show the command lines of every process to every child,
//! and giving none breaks programs that ask for their own memory. So where the spawner may mount
//! `/proc`, the child gets one that hides the processes it could not trace, and by Landlock these are
//! all that it did not start. Elsewhere it gets its own place only, and what it starts gets none.

use std::ffi::CStr;
use std::ptr;

use libc::{c_char, c_int, c_long, c_uint};

use crate::unix::errno;

/// More places to write than this are refused.
const MOST_PLACES: usize = 1024;

/// From <linux/mount.h>.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Keeps what is mounted here from the outside, and not the other way round. To be called first in a
/// new mount namespace.
pub(crate) fn keep_inside() -> Result<(), c_int> {
    let nothing = ptr::null();
    // SAFETY: a plain system call with a string that ends with a zero, and null where that is allowed.
    let result = unsafe {
        let flags = libc::MS_REC | libc::MS_SLAVE;
        libc::mount(nothing, c"/".as_ptr(), nothing, flags, nothing.cast())
    };
    if result == -1 { Err(errno()) } else { Ok(()) }
}

/// Mounts a `/proc` that shows this process and its descendants.
pub(crate) fn mount_proc() -> Result<(), c_int> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: a plain system call with strings that end with a zero.
    let result = unsafe {
        let options = c"hidepid=ptraceable".as_ptr().cast();
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, options)
    };
    if result == -1 { Err(errno()) } else { Ok(()) }
}

/// Makes everything read-only but these places and what is below them. Devices can still be written
/// to. Runs between fork and exec.
pub(crate) fn keep_read_only_but<'p>(
    places: impl Iterator<Item = &'p CStr> + Clone,
) -> Result<(), c_int> {
    let mut kept = [-1; MOST_PLACES];
    let count = places.clone().count();
    let kept = kept.get_mut(..count).ok_or(libc::E2BIG)?;
    // Taken out of the tree first, they stay as they are.
    for (place, kept) in places.clone().zip(&mut *kept) {
        *kept = clone_tree(place)?;
    }
    set_read_only()?;
    for (place, kept) in places.zip(kept) {
        put_tree(*kept, place)?;
    }
    Ok(())
}

/// What is mounted at a place and below it, as a descriptor; `-1` for what is no file or folder, or is
/// missing: Landlock comes next, and tells which place that is.
fn clone_tree(place: &CStr) -> Result<c_int, c_int> {
    // SAFETY: an all-zero `stat` is valid, and the path ends with a zero.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let is_there = libc::stat(place.as_ptr(), &raw mut stat) == 0;
        if !is_there || !matches!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR | libc::S_IFREG) {
            return Ok(-1);
        }
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | AT_RECURSIVE;
        let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, place.as_ptr(), flags);
        number(tree)
    }
}

fn put_tree(tree: c_int, place: &CStr) -> Result<(), c_int> {
    const FROM_DESCRIPTOR: c_uint = 0x4;
    if tree == -1 {
        return Ok(());
    }
    // SAFETY: the paths end with a zero, and the descriptor is closed where it is no longer needed.
    unsafe {
        let (nothing, here) = (c"".as_ptr(), libc::AT_FDCWD);
        let put = libc::syscall(
            libc::SYS_move_mount,
            tree,
            nothing,
            here,
            place.as_ptr(),
            FROM_DESCRIPTOR,
        );
        let put = number(put);
        libc::close(tree);
        put.map(drop)
    }
}

/// Makes all that is mounted read-only.
fn set_read_only() -> Result<(), c_int> {
    const READ_ONLY: u64 = 0x1;
    let attr = MountAttr { attr_set: READ_ONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let root: *const c_char = c"/".as_ptr();
    // SAFETY: reads `attr`, of the size that is given, and a path that ends with a zero.
    let result = unsafe {
        let size = size_of::<MountAttr>();
        let call = libc::SYS_mount_setattr;
        libc::syscall(call, libc::AT_FDCWD, root, AT_RECURSIVE, &raw const attr, size)
    };
    number(result).map(drop)
}

/// From <linux/fcntl.h>.
const AT_RECURSIVE: c_uint = 0x8000;

fn number(result: c_long) -> Result<c_int, c_int> {
    if result == -1 { Err(errno()) } else { Ok(c_int::try_from(result).unwrap_or(-1)) }
}

//! Putting files into a job: each whole under a name of its own, and none through a link.
//!
//! A file takes as much room here as it did where it was: what a child left empty in it (a hole) is
//! not written out. What the disk has no room for is not begun.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Gid, Mode, SeekFrom, Uid, fchown, seek, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::beneath::{create, make_folder, open_to_read};
use super::names::{MAX_DEPTH, is_served, numbered};
use super::node::FileNode;
use super::snapshot::Made;
use super::walk::{Bounds, walk};

/// How many names are tried for a file whose name is taken.
const MAX_TRIES: usize = 1000;

/// How much one call may bring into its job from a workspace, in bytes on the disk.
pub(super) const MAX_COPIED: u64 = 4 << 30;

/// How much is copied before the disk is looked at again: others write to it, too.
const STRETCH: u64 = 16 << 20;

/// How much is copied at once where the file system does not do it by itself.
const PIECE: usize = 256 << 10;

/// Where files are put: the `files/` of a job.
pub(super) struct Delivery<'a> {
    to: OwnedFd,
    owner: u32,
    /// What may still be copied.
    left: u64,
    /// Whether there is room for so many bytes more.
    has_room_for: &'a dyn Fn(u64) -> io::Result<bool>,
}

/// What became of a file that was to be copied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// It is here.
    Here(Made),
    /// It is not there any more, or nothing that can be served.
    Gone,
    /// It is more than one call may bring.
    TooLarge(Made),
}

impl<'a> Delivery<'a> {
    pub(super) fn new(
        to: OwnedFd,
        most: u64,
        has_room_for: &'a dyn Fn(u64) -> io::Result<bool>,
    ) -> io::Result<Self> {
        let owner = FileNode::of(&to)?.owner;
        Ok(Self { to, owner, left: most, has_room_for })
    }

    /// Puts a file with these bytes.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Made> {
        write_new(&self.to, name, |file| file.write_all(bytes))
            .map(|name| Made::new(name, bytes.len() as u64))
    }

    /// Copies the file `path` of `from` to the same path here.
    pub(super) fn copy(&mut self, from: &OwnedFd, path: &str) -> io::Result<Copied> {
        if !is_served(path) {
            return Ok(Copied::Gone);
        }
        let Ok(source) = open_to_read(from, path.as_bytes()) else { return Ok(Copied::Gone) };
        let node = FileNode::of(&source)?;
        let owners = [geteuid().as_raw(), self.owner, FileNode::of(from)?.owner];
        if !node.is_plain_file() || !owners.contains(&node.owner) {
            return Ok(Copied::Gone);
        }
        let too_large = || Ok(Copied::TooLarge(Made::new(path.to_owned(), node.size)));
        if node.space > self.left {
            return too_large();
        }
        self.check_room(node.space)?;
        let source = File::from(source);
        let mut folders: Vec<&str> = path.split('/').collect();
        let name = folders.pop().unwrap_or(path);
        let mut folder = self.to.try_clone()?;
        for part in &folders {
            folder = make_folder(&folder, part, Mode::RWXU)?;
        }
        // What the child adds meanwhile does not belong to this call, and might never end.
        let mut size = 0;
        let written = write_new(&folder, name, |file| {
            size = self.copy_bytes(&source, file, &node)?;
            Ok(())
        });
        let name = match written {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return too_large(),
            written => written?,
        };
        folders.push(&name);
        Ok(Copied::Here(Made::new(folders.join("/"), size)))
    }

    fn check_room(&self, bytes: u64) -> io::Result<()> {
        match (self.has_room_for)(bytes)? {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// Copies what the file was when it was looked at, sharing its bytes on the disk where the file
    /// system can. Gives the size of the copy.
    fn copy_bytes(&mut self, from: &File, to: &File, was: &FileNode) -> io::Result<u64> {
        let limit = was.size;
        #[cfg(target_os = "linux")]
        if rustix::fs::ioctl_ficlone(to, from).is_ok() {
            // The clone took what was there at its moment.
            let size = to.metadata()?.len();
            if size > limit {
                to.set_len(limit)?;
            }
            self.left = self.left.saturating_sub(was.space);
            return Ok(size.min(limit));
        }
        let mut at = 0;
        while let Some((start, end)) = next_data(from, at, limit)? {
            at = start;
            while at < end {
                let stretch = STRETCH.min(end - at);
                // A child may fill its holes while they are copied.
                if stretch > self.left {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                self.check_room(stretch)?;
                let copied = copy_stretch(from, to, at, stretch)?;
                if copied == 0 {
                    // It was cut meanwhile.
                    return Ok(at);
                }
                at += copied;
                self.left -= copied;
            }
        }
        to.set_len(limit)?;
        Ok(limit)
    }
}

/// Where the next bytes from `at` on are that were ever written, before `limit`.
fn next_data(file: &File, at: u64, limit: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= limit {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not tell.
        Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Some((at, limit))),
        Err(error) => return Err(error.into()),
    };
    if start >= limit {
        return Ok(None);
    }
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(limit);
    // Somebody may have made a hole there in between.
    Ok(Some((start, end.clamp(start + 1, limit))))
}

/// Copies up to so many bytes from `at` on; gives how many, which is none at the end of the file.
fn copy_stretch(from: &File, to: &File, at: u64, length: u64) -> io::Result<u64> {
    #[cfg(target_os = "linux")]
    {
        let (mut source, mut target) = (at, at);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), length);
        match copied {
            Ok(count) => return Ok(count as u64),
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(error.into()),
            // Not between these file systems.
            Err(_) => {}
        }
    }
    let mut piece = vec![0; PIECE.min(usize::try_from(length).unwrap_or(PIECE))];
    let count = loop {
        match from.read_at(&mut piece, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    to.write_all_at(&piece[..count], at)?;
    Ok(count as u64)
}

/// Writes a new file, or removes it again. Gives the name it got.
fn write_new(
    folder: &OwnedFd,
    name: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<String> {
    let mut chosen = name.to_owned();
    let mut tries = 1;
    let mut file = loop {
        match create(folder, &chosen) {
            Ok(file) => break File::from(file),
            Err(Errno::EXIST) if tries < MAX_TRIES => {
                tries += 1;
                chosen = numbered(name, tries);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if let Err(error) = write(&mut file) {
        let _gone = unlinkat(folder, &chosen, AtFlags::empty());
        return Err(error);
    }
    Ok(chosen)
}

/// Gives a child's directory, and what is in it, to a user.
pub(super) fn give(folder: &OwnedFd, uid: u32, gid: u32) -> io::Result<()> {
    let (user, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    let before = FileNode::of(folder)?.owner;
    if before != uid {
        let bounds = Bounds { entries: 100_000, depth: MAX_DEPTH };
        walk(folder, bounds, |step| {
            // A second name, or the file of yet another user, may be a trap.
            let ours = step.node.owner == before || step.node.owner == geteuid().as_raw();
            let may_be_given = |node: &FileNode| node.is_folder() || node.is_plain_file();
            if !ours || !may_be_given(step.node) {
                return Ok(false);
            }
            if let Ok(file) = open_to_read(step.folder, step.name)
                && FileNode::of(&file)
                    .is_ok_and(|node| node.is_same(step.node) && may_be_given(&node))
            {
                fchown(file.as_fd(), user, group)?;
            }
            Ok(step.node.is_folder())
        })?;
    }
    Ok(fchown(folder, user, group)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// What becomes of a file of 64 MiB in which `written` bytes were written from `at` on.
    fn check(most: u64, room: u64, at: u64, written: u64, expected: Result<&str, io::ErrorKind>) {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = File::create(source.path().join("a.bin")).unwrap();
        file.set_len(64 * MIB).unwrap();
        file.write_all_at(&vec![7; usize::try_from(written).unwrap()], at).unwrap();
        let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
        let has_room_for = |bytes: u64| Ok(bytes <= room);
        let mut delivery = Delivery::new(open(target.path()), most, &has_room_for).unwrap();
        let copied = delivery.copy(&open(source.path()), "a.bin");
        let found = copied.map(|copied| match copied {
            Copied::Here(_) => "here",
            Copied::Gone => "gone",
            Copied::TooLarge(_) => "too large",
        });
        assert_eq!(found.map_err(|error| error.kind()), expected);
        let copy = target.path().join("a.bin");
        if expected != Ok("here") {
            assert!(!copy.exists(), "no half of it is left");
            return;
        }
        assert_eq!(fs::read(&copy).unwrap(), fs::read(source.path().join("a.bin")).unwrap());
        let space = fs::metadata(&copy).unwrap().blocks() * 512;
        assert!(space <= written + MIB, "{space} bytes are taken");
    }

    #[test]
    fn what_was_never_written_takes_no_room_in_the_copy() {
        check(u64::MAX, u64::MAX, 0, 0, Ok("here"));
        check(u64::MAX, u64::MAX, 0, 10, Ok("here"));
        check(u64::MAX, u64::MAX, 40 * MIB + 5, 10, Ok("here"));
        check(u64::MAX, u64::MAX, 64 * MIB - 10, 10, Ok("here"));
        check(u64::MAX, u64::MAX, 0, 64 * MIB, Ok("here"));
        // Its size is no measure of what it takes.
        check(MIB, MIB, MIB, 10, Ok("here"));
    }

    #[test]
    fn a_file_that_is_too_much_for_one_call_is_left_out() {
        check(MIB, u64::MAX, 5, 2 * MIB, Ok("too large"));
    }

    #[test]
    fn a_file_without_room_is_not_begun() {
        check(u64::MAX, MIB, 5, 2 * MIB, Err(io::ErrorKind::StorageFull));
    }

    #[test]
    fn one_call_may_bring_so_much_in_all() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["a", "b", "c"] {
            fs::write(source.path().join(name), vec![7; 400 << 10]).unwrap();
        }
        let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
        let mut delivery = Delivery::new(open(target.path()), MIB, &|_| Ok(true)).unwrap();
        let from = open(source.path());
        let mut copied = |name: &str| matches!(delivery.copy(&from, name), Ok(Copied::Here(_)));
        assert_eq!(["a", "b", "c"].map(&mut copied), [true, true, false]);
    }

    #[test]
    fn a_disk_that_fills_up_meanwhile_ends_the_copy() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(source.path().join("a"), vec![7; 40 << 20]).unwrap();
        let open = |path: &Path| OwnedFd::from(File::open(path).unwrap());
        let looks = std::cell::Cell::new(0);
        let has_room_for = |_| {
            looks.set(looks.get() + 1);
            Ok(looks.get() < 3)
        };
        let mut delivery = Delivery::new(open(target.path()), u64::MAX, &has_room_for).unwrap();
        let copied = delivery.copy(&open(source.path()), "a");
        // Where the bytes are shared, nothing is taken.
        if !matches!(copied, Ok(Copied::Here(_)) if looks.get() == 1) {
            assert_eq!(copied.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
        }
    }
}

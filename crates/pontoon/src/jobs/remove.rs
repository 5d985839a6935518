//! Removing a whole tree that a child wrote, however deep, wide or closed it is.
//!
//! The usual way holds a descriptor for each level, and two thousand nested folders make it fail.
//! Here the folders inside a folder are moved up to the top first, so that three descriptors are
//! enough. Nothing is followed: not a link, not a mount.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, renameat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

use super::beneath::{open_folder, open_up};
use super::node::FileNode;

/// Removes `name` from `folder` with all that is in it. What is gone already is no error: another
/// bridge may be removing the same.
///
/// # Errors
///
/// When something cannot be removed, or not before `until`; the rest stays for the next time.
pub(super) fn remove_tree(folder: impl AsFd, name: &str, until: Instant) -> io::Result<()> {
    let folder = folder.as_fd();
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // A folder; macOS says so with another error.
        Err(_) => {}
    }
    let Some(top) = open_for_removal(folder, name.as_bytes())? else { return Ok(()) };
    let mut removal = Removal { top, mark: Uuid::new_v4().simple().to_string(), moved: 0, until };
    // A folder that changes while it is read may show too little: it is read until it is empty.
    while removal.pass()? {}
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Removal {
    top: OwnedFd,
    /// What the names of the moved folders begin with: two bridges may move at once.
    mark: String,
    moved: u64,
    until: Instant,
}

impl Removal {
    /// Removes what is at the top, and moves up what is in its folders. Gives whether there was
    /// anything.
    fn pass(&mut self) -> io::Result<bool> {
        let mut found = false;
        for entry in Dir::read_from(&self.top)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_self(name) {
                continue;
            }
            found = true;
            if is_folder(&self.top, name, entry.file_type())? {
                self.empty(name)?;
            } else {
                unlink(&self.top, name)?;
            }
            if Instant::now() > self.until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long"));
            }
        }
        Ok(found)
    }

    /// Removes a folder at the top, after moving up the folders that are in it.
    fn empty(&mut self, name: &CStr) -> io::Result<()> {
        if unlinkat(&self.top, name, AtFlags::REMOVEDIR).is_ok() {
            return Ok(());
        }
        let Some(folder) = open_for_removal(self.top.as_fd(), name.to_bytes())? else {
            return Ok(());
        };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let inner = entry.file_name();
            if is_self(inner) {
                continue;
            }
            if !is_folder(&folder, inner, entry.file_type())? {
                unlink(&folder, inner)?;
            } else if unlinkat(&folder, inner, AtFlags::REMOVEDIR).is_err() {
                self.move_up(&folder, inner)?;
            }
            if Instant::now() > self.until {
                break;
            }
        }
        match unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            // Filled again, or not wholly read: the next pass comes back to it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn move_up(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        self.moved += 1;
        let up = format!("{}-{}", self.mark, self.moved);
        match renameat(folder, name, &self.top, &up) {
            Err(Errno::ACCESS | Errno::PERM) => {
                // A folder that moves has its entry `..` written, so it has to be writable.
                if open_for_removal(folder.as_fd(), name.to_bytes())?.is_none() {
                    return Ok(());
                }
                match renameat(folder, name, &self.top, &up) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            // Too many at the top, or no room there: they go with the next pass.
            Ok(()) | Err(Errno::NOENT | Errno::MLINK | Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_self(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Whether an entry is a folder; not every file system says so when it is read.
fn is_folder(folder: &OwnedFd, name: &CStr, kind: FileType) -> io::Result<bool> {
    if kind != FileType::Unknown {
        return Ok(kind == FileType::Directory);
    }
    match FileNode::at(folder, name) {
        Ok(node) => Ok(node.is_folder()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn unlink(folder: &OwnedFd, name: &CStr) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a folder, and makes it readable and writable first if its owner closed it.
fn open_for_removal(
    folder: std::os::fd::BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<Option<OwnedFd>> {
    let opened = match open_folder(folder, name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // Opened once more: what is mounted there is not ours to empty.
            drop(open_up(folder, name)?);
            open_folder(folder, name)
        }
        opened => opened,
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if FileNode::of(&opened)?.mode & 0o300 != 0o300 {
        rustix::fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(Some(opened))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::time::Duration;

    use rustix::fs::{CWD, mkdirat, mkfifoat};

    use super::*;

    /// Builds something called `tree`, and removes it; what is beside it stays.
    fn check(build: impl FnOnce(&Path)) {
        // In memory where that is possible: building takes longer than removing.
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir_all(place.path().join("beside/it")).unwrap();
        fs::write(place.path().join("beside/file"), "").unwrap();
        build(&place.path().join("tree"));
        let folder = File::open(place.path()).unwrap();
        remove_tree(&folder, "tree", later()).unwrap();
        assert!(fs::symlink_metadata(place.path().join("tree")).is_err());
        assert!(
            place.path().join("beside/it").is_dir() && place.path().join("beside/file").exists()
        );
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(300)
    }

    #[test]
    fn what_is_not_there_is_removed() {
        check(|_| {});
    }

    #[test]
    fn files_links_and_pipes_are_removed() {
        check(|tree| fs::write(tree, "").unwrap());
        check(|tree| symlink("beside", tree).unwrap());
        check(|tree| {
            fs::create_dir_all(tree.join("a/b/c")).unwrap();
            fs::write(tree.join("a/b/file"), "").unwrap();
            symlink("../../beside", tree.join("a/link")).unwrap();
            symlink("../../../beside", tree.join("a/b/link")).unwrap();
            mkfifoat(CWD, tree.join("a/pipe"), Mode::RUSR).unwrap();
        });
    }

    #[test]
    fn a_tree_of_any_depth_is_removed() {
        check(|tree| {
            fs::create_dir(tree).unwrap();
            let mut at = OwnedFd::from(File::open(tree).unwrap());
            for _ in 0..20_000 {
                mkdirat(&at, "d", Mode::RWXU).unwrap();
                mkdirat(&at, "e", Mode::RWXU).unwrap();
                at = open_folder(&at, b"d").unwrap();
            }
        });
    }

    #[test]
    fn a_tree_of_any_width_is_removed() {
        check(|tree| {
            for folder in 0..20 {
                let folder = tree.join(folder.to_string());
                fs::create_dir_all(&folder).unwrap();
                for file in 0..1000 {
                    File::create(folder.join(file.to_string())).unwrap();
                }
            }
        });
    }

    #[test]
    fn folders_their_owner_closed_are_removed() {
        check(|tree| {
            for mode in [0o000, 0o100, 0o200, 0o400, 0o500] {
                let folder = tree.join(format!("a{mode:o}/b/c"));
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("file"), "").unwrap();
                for path in folder.ancestors().take(3) {
                    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                }
            }
            fs::set_permissions(tree, Permissions::from_mode(0o000)).unwrap();
        });
    }

    #[test]
    fn a_removal_ends_in_time_and_goes_on_later() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("tree/a/b/c/d")).unwrap();
        let folder = File::open(place.path()).unwrap();
        let error = remove_tree(&folder, "tree", Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        remove_tree(&folder, "tree", later()).unwrap();
        assert!(!place.path().join("tree").exists());
    }

    #[test]
    fn several_may_remove_the_same() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..2000 {
            fs::create_dir_all(place.path().join(format!("tree/{}/{number}/x", number % 7)))
                .unwrap();
        }
        let folder = File::open(place.path()).unwrap();
        std::thread::scope(|scope| {
            let remove = || remove_tree(&folder, "tree", later()).unwrap();
            for _ in 0..4 {
                scope.spawn(remove);
            }
        });
        assert!(!place.path().join("tree").exists());
    }
}

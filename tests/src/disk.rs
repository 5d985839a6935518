//! A disk that is small enough to be filled: a file system in memory, mounted by the test.
//!
//! Only the superuser can mount one. Elsewhere [`SmallDisk::mount`] says so and gives nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A small disk, unmounted when it is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    place: TempDir,
}

impl SmallDisk {
    /// A disk of so many bytes and files; `None` where we may not mount, which is told.
    ///
    /// # Panics
    ///
    /// When it cannot be mounted for another reason.
    pub fn mount(bytes: u64, files: u64) -> Option<Self> {
        let place = tempfile::Builder::new().prefix("pontoon-disk-").tempdir().expect("a place");
        let options = format!("size={bytes},nr_inodes={files},mode=0700");
        match memory::mount(place.path(), &options) {
            Ok(()) => Some(Self { place }),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                ) =>
            {
                #[expect(clippy::print_stderr, reason = "whoever runs the tests should know")]
                {
                    eprintln!("skipped: no small disk can be mounted here ({error}); be root");
                }
                None
            }
            Err(error) => panic!("no small disk: {error}"),
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Where a bridge keeps its jobs on it.
    pub fn jobs(&self) -> PathBuf {
        self.path().join("jobs")
    }

    /// The bytes that are free.
    ///
    /// # Panics
    ///
    /// When the disk cannot be looked at.
    pub fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(self.path()).expect("the disk is mounted");
        found.f_bavail * found.f_frsize
    }

    /// The bytes that are taken.
    ///
    /// # Panics
    ///
    /// When the disk cannot be looked at.
    pub fn used(&self) -> u64 {
        let found = rustix::fs::statvfs(self.path()).expect("the disk is mounted");
        (found.f_blocks - found.f_bfree) * found.f_frsize
    }

    /// Fills it until so many bytes are free.
    ///
    /// # Panics
    ///
    /// When something else than the room is missing.
    pub fn fill(&self, leaving: u64) {
        let mut ballast = File::options()
            .create(true)
            .append(true)
            .open(self.ballast())
            .expect("there is room for a name");
        let piece = vec![b'x'; 1 << 20];
        while let left @ 1.. = self.free().saturating_sub(leaving) {
            let length = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            match ballast.write_all(&piece[..length]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return,
                Err(error) => panic!("the disk cannot be filled: {error}"),
            }
        }
    }

    /// Fills it with files until there can be no more of them.
    ///
    /// # Panics
    ///
    /// When something else than the room is missing.
    pub fn fill_with_files(&self) {
        fs::create_dir_all(self.names()).expect("there is room for a name");
        for number in 0_u64.. {
            match File::create(self.names().join(number.to_string())) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return,
                Err(error) => panic!("the disk cannot be filled: {error}"),
            }
        }
    }

    /// Takes away what it was filled with.
    pub fn empty(&self) {
        let _ = fs::remove_file(self.ballast());
        let _ = fs::remove_dir_all(self.names());
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    fn names(&self) -> PathBuf {
        self.path().join("names")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What still uses it keeps it until its own end.
        let _ = memory::unmount(self.place.path());
    }
}

#[cfg(target_os = "linux")]
mod memory {
    use std::ffi::CString;
    use std::io;
    use std::path::Path;

    use rustix::mount::{MountFlags, UnmountFlags};

    pub(super) fn mount(place: &Path, options: &str) -> io::Result<()> {
        let options = CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        Ok(rustix::mount::mount("tmpfs", place, "tmpfs", flags, Some(options.as_c_str()))?)
    }

    pub(super) fn unmount(place: &Path) -> io::Result<()> {
        Ok(rustix::mount::unmount(place, UnmountFlags::DETACH)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod memory {
    use std::io;
    use std::path::Path;

    pub(super) fn mount(_place: &Path, _options: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn unmount(_place: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// The jobs in a jobs directory, each with what its `metadata.json` says; `None` where there is none,
/// or only the beginning of one.
pub fn records(jobs: &Path) -> Vec<(String, Option<serde_json::Value>)> {
    let entries = fs::read_dir(jobs).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let record = |name: &str| {
        let text = fs::read(jobs.join(name).join("metadata.json")).ok()?;
        serde_json::from_slice(&text).ok()
    };
    let jobs = names.filter(|name| !name.starts_with('.'));
    jobs.map(|name| (name.clone(), record(&name))).collect()
}

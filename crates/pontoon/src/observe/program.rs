//! Which file a bridge runs, and whether another one lies there now: a bridge goes on as it began when its program is
//! replaced, and shows old behaviour until it is started again.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file of a program, as it was when the program began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningProgram {
    path: PathBuf,
    device: u64,
    inode: u64,
    bytes: u64,
    /// In seconds and nanoseconds.
    modified: (i64, i64),
}

/// What lies now where a program was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisk {
    /// The same file.
    Same,
    /// Another one, or the same with another content.
    Replaced,
    /// Nothing.
    Gone,
}

impl OnDisk {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Replaced => "replaced",
            Self::Gone => "gone",
        }
    }
}

impl RunningProgram {
    /// The file of this process; to be asked soon after it began.
    pub fn of_process() -> Option<Self> {
        let path = std::env::current_exe().ok()?;
        // The very file that runs, also if another one has its name by now.
        let status = match cfg!(target_os = "linux") {
            true => fs::metadata("/proc/self/exe").ok()?,
            false => fs::metadata(&path).ok()?,
        };
        let plain = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
        let path = plain.map_or_else(|| path.clone(), PathBuf::from);
        Some(Self::new(path, &status))
    }

    fn new(path: PathBuf, status: &Metadata) -> Self {
        Self {
            path,
            device: status.dev(),
            inode: status.ino(),
            bytes: status.size(),
            modified: (status.mtime(), status.mtime_nsec()),
        }
    }

    /// Where it was.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What lies there now.
    pub fn on_disk(&self) -> OnDisk {
        match fs::metadata(&self.path) {
            Ok(status) if Self::new(self.path.clone(), &status) == *self => OnDisk::Same,
            Ok(_) => OnDisk::Replaced,
            Err(_) => OnDisk::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_written_anew_or_removed_is_seen() {
        assert_eq!(RunningProgram::of_process().unwrap().on_disk(), OnDisk::Same);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let write = |text: &str| fs::write(&path, text).unwrap();
        let begin = || RunningProgram::new(path.clone(), &fs::metadata(&path).unwrap());
        write("one");
        let program = begin();
        assert_eq!(program.on_disk(), OnDisk::Same);
        fs::write(folder.path().join("new"), "two").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(program.on_disk(), OnDisk::Replaced);
        let program = begin();
        write("longer");
        assert_eq!(program.on_disk(), OnDisk::Replaced);
        fs::remove_file(&path).unwrap();
        assert_eq!(program.on_disk(), OnDisk::Gone);
    }
}

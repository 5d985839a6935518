//! The log file of one instance: of bounded size, with a few older ones beside it.
//!
//! Several instances may share the directory, or be given one name: each holds a lock on its own file. A fault of the disk costs lines and nothing else; a line is there whole or not at all. Of a file
//! that a user named nothing is ever taken away: half a line stays, and the next one is not joined to it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::old::remove_old;
use super::place::LogPlace;

/// How large a file may become, and how many there are of one instance.
const MAX_BYTES: u64 = 10 << 20;
const GENERATIONS: u32 = 5;

/// How often it is tried to open a file that could not be opened, and looked whether it still
/// lies where it was.
const LOOK: Duration = Duration::from_secs(5);

/// Instances with one name on one machine, told apart by a number.
const MAX_NAMESAKES: u32 = 100;

/// The log file of this instance.
#[derive(Debug)]
pub(super) struct LogFile {
    name: LogName,
    max_bytes: u64,
    open: Option<OpenLog>,
    looked: Option<Instant>,
}

/// What the file is called, or another that an instance has to take in its place.
#[derive(Debug)]
struct LogName {
    folder: PathBuf,
    stem: OsString,
    /// With its dot.
    ending: OsString,
    /// Whether what other instances left in the folder is removed in time.
    is_among_ours: bool,
}

impl LogName {
    /// The first of these names, or the one of that number.
    fn numbered(&self, number: u32) -> OsString {
        let mut name = self.stem.clone();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        name.push(&self.ending);
        name
    }
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    path: PathBuf,
    length: u64,
    /// What is done about half a line at its end.
    half_line: HalfLine,
}

/// What becomes of half a line at the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HalfLine {
    /// The file is ours alone: it goes.
    Goes,
    /// The file was named by a user and may have been there before: it stays.
    Stays,
}

impl LogFile {
    /// The file that this place means for this process; it is opened when something is written.
    pub(super) fn new(place: LogPlace<'_>) -> Self {
        match place {
            LogPlace::Folder(folder) => Self::in_folder(folder),
            LogPlace::File(file) => Self::at(file, MAX_BYTES),
        }
    }

    /// The file of this process in `folder`.
    fn in_folder(folder: &Path) -> Self {
        let host = rustix::system::uname();
        let host: String = host.nodename().to_string_lossy().chars().filter(is_plain).collect();
        let stem = format!("pontoon-{}-{}", &host[..host.len().min(64)], std::process::id());
        Self::with(folder, stem, MAX_BYTES)
    }

    fn with(folder: &Path, stem: String, max_bytes: u64) -> Self {
        let (folder, stem, ending) = (folder.to_owned(), stem.into(), ".log".into());
        Self::named(LogName { folder, stem, ending, is_among_ours: true }, max_bytes)
    }

    /// The file of this very name, unless another instance writes it.
    fn at(file: &Path, max_bytes: u64) -> Self {
        let mut ending = OsString::new();
        if let Some(extension) = file.extension() {
            ending.push(".");
            ending.push(extension);
        }
        let stem = file.file_stem().unwrap_or_default().to_owned();
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        Self::named(LogName { folder, stem, ending, is_among_ours: false }, max_bytes)
    }

    fn named(name: LogName, max_bytes: u64) -> Self {
        Self { name, max_bytes, open: None, looked: None }
    }

    /// Writes whole lines. An error costs these lines and is no reason not to write the next.
    pub(super) fn write(&mut self, lines: &[u8], now: Instant) -> io::Result<()> {
        let is_time = self.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK);
        if is_time {
            self.looked = Some(now);
            self.open.take_if(|open| !open.is_in_place());
        }
        // After a fault there is none, until it is time to look again.
        let mut open = match self.open.take() {
            Some(open) => open,
            None if is_time => open(&self.name)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        if open.length > 0 && open.length + lines.len() as u64 > self.max_bytes {
            open = open.turn_over()?;
        }
        self.open.insert(open).append(lines)
    }
}

impl OpenLog {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.half_line == HalfLine::Stays && !ends_with_newline(&self.file)? {
            self.file.write_all(b"\n")?;
            self.length += 1;
        }
        let written = self.file.write_all(lines);
        match (&written, self.half_line) {
            (Ok(()), _) => self.length += lines.len() as u64,
            // Half a line would spoil the next one.
            (Err(_), HalfLine::Goes) => drop(self.file.set_len(self.length)),
            (Err(_), HalfLine::Stays) => {
                self.length = self.file.metadata().map_or(self.length, |file| file.len());
            }
        }
        written
    }

    /// Makes this file the newest of the old ones and begins another.
    fn turn_over(self) -> io::Result<Self> {
        // Without it, the old ones would move on for nothing, and the oldest be lost each time.
        if self.is_in_place() {
            self.make_old()?;
        }
        let Self { file, path, half_line, .. } = self;
        // Its descriptor may be the one that the next file needs.
        drop(file);
        Ok(open_at(&path, half_line)?.ok_or(io::ErrorKind::ResourceBusy)?)
    }

    fn make_old(&self) -> io::Result<()> {
        let old = |generation: u32| -> PathBuf {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{generation}"));
            name.into()
        };
        for generation in (1..GENERATIONS - 1).rev() {
            match fs::rename(old(generation), old(generation + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, old(1))
    }

    /// Whether the file still lies under its name: an operator may have removed or moved it.
    fn is_in_place(&self) -> bool {
        let (Ok(ours), Ok(there)) = (self.file.metadata(), fs::symlink_metadata(&self.path)) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }
}

/// Opens the file that this instance may write: the first of its names that no other instance holds.
fn open(name: &LogName) -> io::Result<OpenLog> {
    let folder = &name.folder;
    if !folder.as_os_str().is_empty() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let half_line = if name.is_among_ours { HalfLine::Goes } else { HalfLine::Stays };
    for name_of_file in (1..=MAX_NAMESAKES).map(|number| name.numbered(number)) {
        if let Some(open) = open_at(&folder.join(&name_of_file), half_line)? {
            if let (true, Some(own)) = (name.is_among_ours, name_of_file.to_str()) {
                remove_old(folder, own);
            }
            return Ok(open);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Opens one file, which is made for its owner only, and locks it; `None` if another instance holds it.
fn open_at(path: &Path, half_line: HalfLine) -> io::Result<Option<OpenLog>> {
    // No symbolic link is followed, and a pipe under that name does not hold us up.
    let guards = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | guards;
    let opened =
        rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
            Errno::LOOP => io::Error::other("it is a symbolic link, which is not followed"),
            error => error.into(),
        });
    let file = File::from(opened?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(io::Error::other("it is not a file of its own"));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        // Some file systems of networks have no locks.
        Err(_) => {}
    }
    let mut length = metadata.len();
    if half_line == HalfLine::Goes {
        file.set_permissions(Permissions::from_mode(0o600))?;
        length = whole_lines(&file, length)?;
        file.set_len(length)?;
    }
    Ok(Some(OpenLog { file, path: path.to_owned(), length, half_line }))
}

/// Whether the next line begins a line of its own.
fn ends_with_newline(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(true) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte == *b"\n")
}

/// Up to where the file holds whole lines: the last one may have been cut by a crash.
fn whole_lines(file: &File, length: u64) -> io::Result<u64> {
    let mut end = [0; 64 * 1024];
    let start = length.saturating_sub(end.len() as u64);
    let end = &mut end[..usize::try_from(length - start).unwrap_or_default()];
    file.read_exact_at(end, start)?;
    let newline = end.iter().rposition(|byte| *byte == b'\n');
    Ok(newline.map_or(start, |at| start + at as u64 + 1))
}

fn is_plain(c: &char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    use super::*;

    fn log_file(folder: &Path) -> LogFile {
        LogFile::with(folder, "pontoon-h-1".to_owned(), 8)
    }

    /// What is in a folder, by name.
    fn contents(folder: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        };
        entries.map(read).collect()
    }

    fn check(folder: &Path, expected: &[(&str, &str)]) {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        assert_eq!(contents(folder), expected);
    }

    #[test]
    fn a_file_that_is_full_becomes_an_old_one_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log_file(folder.path());
        let now = Instant::now();
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "4444444\n",
            "5555\n",
            "66666666666\n",
            "7\n",
            "8888888\n",
        ] {
            log.write(line.as_bytes(), now).unwrap();
        }
        check(
            folder.path(),
            &[
                ("pontoon-h-1.log", "8888888\n"),
                ("pontoon-h-1.log.1", "7\n"),
                ("pontoon-h-1.log.2", "66666666666\n"),
                ("pontoon-h-1.log.3", "5555\n"),
                ("pontoon-h-1.log.4", "4444444\n"),
            ],
        );
        for name in contents(folder.path()).keys() {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn two_instances_never_write_into_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, mut second) = (log_file(folder.path()), log_file(folder.path()));
        first.write(b"a\n", Instant::now()).unwrap();
        second.write(b"b\n", Instant::now()).unwrap();
        check(folder.path(), &[("pontoon-h-1.log", "a\n"), ("pontoon-h-1-2.log", "b\n")]);
        drop(first);
        log_file(folder.path()).write(b"c\n", Instant::now()).unwrap();
        check(folder.path(), &[("pontoon-h-1.log", "a\nc\n"), ("pontoon-h-1-2.log", "b\n")]);
    }

    #[test]
    fn a_file_that_was_named_has_its_name_unless_another_instance_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/max.log");
        let (mut first, mut second) = (LogFile::at(&file, 8), LogFile::at(&file, 8));
        for line in [b"one\n" as &[u8], b"two\n", b"three\n"] {
            first.write(line, Instant::now()).unwrap();
        }
        second.write(b"other\n", Instant::now()).unwrap();
        let expected =
            [("max.log", "three\n"), ("max.log.1", "one\ntwo\n"), ("max-2.log", "other\n")];
        check(&folder.path().join("new"), &expected);
        let mut plain = LogFile::at(&folder.path().join("new/log"), 8);
        plain.write(b"x\n", Instant::now()).unwrap();
        assert!(folder.path().join("new/log").is_file());
        // Nothing that is beside it is ours to remove.
        let gone = folder.path().join("new/pontoon-h-1.log");
        (0..40).for_each(|n| {
            fs::write(folder.path().join(format!("new/pontoon-h-{n}.log")), "").unwrap()
        });
        LogFile::at(&file, 8).write(b"again\n", Instant::now()).unwrap();
        assert!(gone.exists());
    }

    #[test]
    fn a_line_that_a_crash_cut_goes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pontoon-h-1.log"), "a\n{\"ha").unwrap();
        log_file(folder.path()).write(b"b\n", Instant::now()).unwrap();
        check(folder.path(), &[("pontoon-h-1.log", "a\nb\n")]);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pontoon-h-1.log"), "x").unwrap();
        log_file(folder.path()).write(b"b\n", Instant::now()).unwrap();
        check(folder.path(), &[("pontoon-h-1.log", "b\n")]);
    }

    #[test]
    fn of_a_file_that_was_named_nothing_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        for (before, after) in [
            ("no newline at all", "no newline at all\nb\nc\n"),
            ("a\nhalf", "a\nhalf\nb\nc\n"),
            ("a\n", "a\nb\nc\n"),
            ("", "b\nc\n"),
        ] {
            fs::write(&path, before).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let mut log = LogFile::at(&path, 80);
            log.write(b"b\n", Instant::now()).unwrap();
            log.write(b"c\n", Instant::now()).unwrap();
            check(folder.path(), &[("notes.txt", after)]);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
            // Another program writes there as well, and stops in the middle of a line.
            fs::write(&path, format!("{after}half")).unwrap();
            log.write(b"d\n", Instant::now()).unwrap();
            check(folder.path(), &[("notes.txt", &format!("{after}half\nd\n"))]);
        }
    }

    #[test]
    fn old_files_stay_when_a_full_one_cannot_be_followed_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, now) = (log_file(folder.path()), Instant::now());
        for line in ["1111111\n", "2222222\n", "3333333\n"] {
            log.write(line.as_bytes(), now).unwrap();
        }
        // Something is in the way under its name.
        let path = folder.path().join("pontoon-h-1.log");
        fs::rename(&path, folder.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        for _ in 0..GENERATIONS {
            assert!(log.write(b"lost\n", now).is_err());
        }
        fs::remove_dir(&path).unwrap();
        log.write(b"4444444\n", now + LOOK).unwrap();
        check(
            folder.path(),
            &[
                ("moved", "3333333\n"),
                ("pontoon-h-1.log", "4444444\n"),
                ("pontoon-h-1.log.1", "2222222\n"),
                ("pontoon-h-1.log.2", "1111111\n"),
            ],
        );
    }

    #[test]
    fn a_file_that_was_taken_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log_file(&folder.path().join("logs"));
        let now = Instant::now();
        log.write(b"a\n", now).unwrap();
        fs::remove_dir_all(folder.path().join("logs")).unwrap();
        log.write(b"lost\n", now).unwrap();
        log.write(b"b\n", now + LOOK).unwrap();
        check(&folder.path().join("logs"), &[("pontoon-h-1.log", "b\n")]);
    }

    #[test]
    fn no_link_is_followed_and_no_pipe_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, logs) = (folder.path().join("victim"), folder.path().join("logs"));
        let planted = logs.join("pontoon-h-1.log");
        fs::create_dir(&logs).unwrap();
        fs::write(&victim, "mine").unwrap();
        let refused = || log_file(&logs).write(b"a\n", Instant::now()).is_err();
        symlink(&victim, &planted).unwrap();
        assert!(refused());
        fs::remove_file(&planted).unwrap();
        fs::hard_link(&victim, &planted).unwrap();
        assert!(refused());
        fs::remove_file(&planted).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &planted, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(refused());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_tried_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        fs::write(&logs, "a file").unwrap();
        let (mut log, now) = (log_file(&logs), Instant::now());
        assert!(log.write(b"a\n", now).is_err());
        fs::remove_file(&logs).unwrap();
        assert!(log.write(b"b\n", now).is_err(), "not at each line");
        log.write(b"c\n", now + LOOK).unwrap();
        check(&logs, &[("pontoon-h-1.log", "c\n")]);
    }

    #[test]
    fn a_write_that_fails_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pontoon-h-1.log");
        fs::write(&path, "a\n").unwrap();
        // Opened for reading only, so that writing fails.
        let file = File::open(&path).unwrap();
        let mut open = OpenLog { file, path, length: 2, half_line: HalfLine::Goes };
        assert!(open.append(b"b\n").is_err());
        assert_eq!(open.length, 2);
        check(folder.path(), &[("pontoon-h-1.log", "a\n")]);
    }
}

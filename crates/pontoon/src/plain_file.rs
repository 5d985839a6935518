//! Files that the bridge reads and writes by itself: none of them can hang it or fill its memory, and no
//! reader sees a half of one.
//!
//! Whatever has the name of such a file may be something else: a pipe waits for its writer, and a device
//! never ends. What lies in the jobs directory is opened by `jobs`, which follows no link in any path.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use uuid::Uuid;

/// An unfinished file that nobody wrote to for this long has no writer any more.
const GIVEN_UP: Duration = Duration::from_secs(600);

/// What a path may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file of this very name: we wrote it.
    Own,
    /// A regular file, perhaps behind links, as Kubernetes lays them.
    Regular,
    /// Whatever the operator names: also a pipe, such as a shell's `<(...)`.
    Named,
}

/// Opens a file to be read. Only one that the operator names may keep us waiting.
///
/// # Errors
///
/// When it is not there, or not of this kind.
pub fn open(path: &Path, kind: FileKind) -> io::Result<File> {
    let flags = match kind {
        FileKind::Own => OFlags::NOFOLLOW | OFlags::NONBLOCK,
        FileKind::Regular => OFlags::NONBLOCK,
        FileKind::Named => return File::open(path),
    };
    let flags = flags | OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

/// All of a file, if it has no more bytes than `limit`.
///
/// # Errors
///
/// When it has more, or cannot be opened or read.
pub fn read(path: &Path, kind: FileKind, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, kind)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it is longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
///
/// As [`read`], and when it is not UTF-8.
pub fn read_text(path: &Path, kind: FileKind, limit: u64) -> io::Result<String> {
    let bytes = read(path, kind, limit)?;
    if let Some(encoding) = wide_encoding(&bytes) {
        let why = format!("it is written in {encoding}: save it as UTF-8");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let why = format!("it is not UTF-8 at byte {at} (line {line}): save it as UTF-8");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// The encoding of a text of more than one byte a letter, which some editors write: by its mark, or by the zeros in what
/// begins like JSON.
fn wide_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
        [b'{' | b'[' | b'/', 0, ..] | [0, b'{' | b'[' | b'/', ..] => Some("UTF-16"),
        _ => None,
    }
}

/// Writes a file of its owner's alone under another name, and gives it its own when it is whole. After an
/// error nothing is left of it.
///
/// # Errors
///
/// When it cannot be written, or something else than a file has its name.
pub fn write_whole(
    folder: impl AsFd,
    name: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder.as_fd();
    let unfinished = format!(".{name}.{}", Uuid::new_v4().simple());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = BufWriter::new(File::from(file));
    let written = write(&mut file).and_then(|()| file.flush());
    let placed = written.and_then(|()| Ok(renameat(folder, &unfinished, folder, name)?));
    if placed.is_err() {
        let _gone = unlinkat(folder, &unfinished, AtFlags::empty());
    }
    placed
}

/// Removes what [`write_whole`] left in a folder when its process was killed.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn remove_unfinished(folder: &OwnedFd, now: SystemTime) -> io::Result<()> {
    remove_old(folder, now, GIVEN_UP, is_unfinished)
}

/// Removes the files of a folder whose names are `meant` and that were not written for longer than `age`.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn remove_old(
    folder: &OwnedFd,
    now: SystemTime,
    age: Duration,
    meant: impl Fn(&str) -> bool,
) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_str().is_ok_and(&meant) {
            continue;
        }
        let Ok(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let written = u64::try_from(found.st_mtime).unwrap_or_default();
        let since = now.duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(written));
        if since.is_ok_and(|since| since > age) {
            // Another bridge may be faster.
            let _gone = unlinkat(folder, name, AtFlags::empty());
        }
    }
    Ok(())
}

fn is_unfinished(name: &str) -> bool {
    let Some((_, mark)) = name.strip_prefix('.').and_then(|rest| rest.rsplit_once('.')) else {
        return false;
    };
    mark.len() == 32 && mark.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::mkfifoat;

    use super::*;

    /// Whether a file of this kind is read where `prepare` made something.
    fn check(prepare: impl Fn(&Path), read_as: [bool; 2]) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        prepare(&path);
        let kinds = [FileKind::Own, FileKind::Regular];
        assert_eq!(kinds.map(|kind| read(&path, kind, 4).is_ok()), read_as);
    }

    #[test]
    fn only_regular_files_of_bounded_length_are_read_and_nothing_waits() {
        check(|path| fs::write(path, "1234").unwrap(), [true, true]);
        check(|path| fs::write(path, "12345").unwrap(), [false, false]);
        check(|path| File::create(path).unwrap().set_len(1 << 40).unwrap(), [false, false]);
        check(|_| {}, [false, false]);
        check(|path| fs::create_dir(path).unwrap(), [false, false]);
        check(|path| mkfifoat(CWD, path, Mode::RUSR).unwrap(), [false, false]);
        check(|path| drop(UnixListener::bind(path).unwrap()), [false, false]);
        check(|path| symlink("/dev/zero", path).unwrap(), [false, false]);
        let linked = |path: &Path| {
            fs::write(path.with_file_name("real"), "1").unwrap();
            symlink("real", path).unwrap();
        };
        check(linked, [false, true]);
    }

    #[test]
    fn what_the_operator_names_may_be_a_pipe_but_not_endless() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pipe");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| fs::write(&path, "{}").unwrap());
            assert_eq!(read_text(&path, FileKind::Named, 4).unwrap(), "{}");
        });
        let error = read(Path::new("/dev/zero"), FileKind::Named, 4).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 4 bytes");
    }

    #[test]
    fn text_that_is_none_is_refused_with_its_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, b"ab\xff").unwrap();
        let error = read_text(&path, FileKind::Own, 9).unwrap_err();
        assert_eq!(error.to_string(), "it is not UTF-8 at byte 2 (line 1): save it as UTF-8");
        for wide in [&b"\xff\xfe{\0"[..], b"\xfe\xff\0{", b"{\0}\0"] {
            fs::write(&path, wide).unwrap();
            let error = read_text(&path, FileKind::Own, 9).unwrap_err();
            assert_eq!(error.to_string(), "it is written in UTF-16: save it as UTF-8");
        }
    }

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let folder = File::open(place.path()).unwrap();
        let write = |text: &'static str, fail: bool| {
            write_whole(&folder, "a", |file| {
                file.write_all(text.as_bytes())?;
                if fail { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            })
        };
        write("old", false).unwrap();
        assert!(write("new", true).is_err());
        assert_eq!(fs::read_to_string(place.path().join("a")).unwrap(), "old");
        fs::remove_file(place.path().join("a")).unwrap();
        fs::create_dir(place.path().join("a")).unwrap();
        assert!(write("new", false).is_err(), "a folder is in the way");
        assert_eq!(names(place.path()), ["a"]);
    }

    #[test]
    fn what_a_killed_process_left_goes_after_a_while_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let mark = Uuid::new_v4().simple().to_string();
        let others = ["a".to_owned(), ".a".to_owned(), format!("a.{mark}"), format!(".a.{mark}x")];
        let left = format!(".a.json.{mark}");
        for name in others.iter().chain([&left]) {
            fs::write(place.path().join(name), "").unwrap();
        }
        let folder = OwnedFd::from(File::open(place.path()).unwrap());
        remove_unfinished(&folder, SystemTime::now()).unwrap();
        assert!(names(place.path()).contains(&left), "it may be in the making");
        remove_unfinished(&folder, SystemTime::now() + 2 * GIVEN_UP).unwrap();
        let mut found = names(place.path());
        found.sort();
        let mut others = others.to_vec();
        others.sort();
        assert_eq!(found, others);
    }
}

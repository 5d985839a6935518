//! The catalogue of a server on disk, so that the next start of the bridge need not learn it first.
//!
//! A file is named after its server and the server's fingerprint. Bridges may share a folder and run the
//! server with other arguments, so a file of another fingerprint is removed only when no bridge has
//! written it for a week: one that runs does so every hour.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::catalog::Catalog;
use crate::config::Server;
use crate::plain_file::{self, FileKind, remove_old, remove_unfinished, write_whole};

/// More bytes than this were not written by us.
const LONGEST: u64 = 64 << 20;

/// No bridge uses a file that was not written for this long.
pub(super) const UNUSED: Duration = Duration::from_secs(7 * 86_400);

/// Where the catalogue of a server is kept.
pub(super) fn file_of(server: &Server, state_dir: &Path) -> PathBuf {
    let folder = state_dir.join("catalog");
    folder.join(format!("{}-{:016x}.json", server.name, server.fingerprint))
}

/// Whether both names are those of files of one server, whatever its fingerprint.
fn is_of_same_server(name: &str, other: &str) -> bool {
    let server = |name: &str| {
        let (server, print) = name.strip_suffix(".json")?.rsplit_once('-')?;
        let is_print = print.len() == 16 && print.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_print.then(|| server.to_owned())
    };
    server(name).is_some_and(|it| server(other) == Some(it))
}

/// What was kept; `None` if there is nothing, or nothing of use.
pub(super) fn read(file: &Path) -> Option<Catalog> {
    let text = match plain_file::read(file, FileKind::Own, LONGEST) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "a catalogue cannot be read; its server is learnt anew");
            return None;
        }
        read => read.ok()?,
    };
    let catalog: Catalog = serde_json::from_slice(&text).ok()?;
    Some(catalog).filter(|catalog| catalog.legacy.is_some() || catalog.modern.is_some())
}

/// Keeps it, readable by its owner only, and removes those of the same server that were not written for so long.
pub(super) fn write(
    file: &Path,
    catalog: &Catalog,
    now: SystemTime,
    unused: Option<Duration>,
) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let folder = OwnedFd::from(File::open(directory)?);
    remove_unfinished(&folder, now)?;
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or("catalog");
    let text = serde_json::to_vec(catalog)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
    }
    write_whole(&folder, name, |out| io::Write::write_all(out, &text))?;
    // Applications are all of one name, and away for as long as they like.
    unused.map_or(Ok(()), |unused| {
        remove_old(&folder, now, unused, |other| other != name && is_of_same_server(other, name))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_of_old_fingerprints_go_when_no_bridge_writes_them_any_more() {
        let state = tempfile::tempdir().unwrap();
        let server = |name: &str, fingerprint| {
            let plain = Server::new(name.parse().unwrap(), Ok("/bin/a".into()), Vec::new());
            file_of(&Server { fingerprint, ..plain }, state.path())
        };
        let (new, old) = (server("a", 2), server("a", 1));
        let others = [server("b", 1), server("a-b", 1), server("a-0000000000000001", 1)];
        let begin = SystemTime::now();
        for file in [&old].into_iter().chain(&others) {
            write(file, &Catalog::default(), begin, Some(UNUSED)).unwrap();
        }
        let stranger = state.path().join("catalog/a-1.json");
        std::fs::write(&stranger, "").unwrap();
        write(&new, &Catalog::default(), begin + UNUSED / 2, Some(UNUSED)).unwrap();
        assert!(old.exists(), "a bridge that runs may have written it within the hour");
        write(&new, &Catalog::default(), begin + UNUSED * 2, None).unwrap();
        assert!(old.exists(), "an application may be away for as long as it likes");
        write(&new, &Catalog::default(), begin + UNUSED * 2, Some(UNUSED)).unwrap();
        assert!(!old.exists(), "no bridge has written it for a week");
        assert!(new.exists() && stranger.exists() && others.iter().all(|other| other.exists()));
    }

    #[test]
    fn a_file_without_an_era_is_of_no_use() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("a.json");
        let facts = "{\"capabilities\":{},\"server_info\":null,\"instructions\":null,\"lists\":{},\"hints\":{}}";
        for (text, is_of_use) in [
            ("{}".to_owned(), false),
            ("not JSON".to_owned(), false),
            (format!("{{\"legacy\":{facts},\"modern\":null}}"), true),
        ] {
            std::fs::write(&file, &text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            assert_eq!(read(&file).is_some(), is_of_use, "{text}");
        }
    }
}

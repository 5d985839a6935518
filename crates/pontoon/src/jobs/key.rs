//! The key of a jobs directory: a secret that its bridges share and no confined child can read.
//!
//! The ids of MCP sessions are signed by it, and the folder of a session is named by it. A child has our user, so it may change what it can name;
//! with a plain hash it could work out the folder of anybody whose address or name it knows.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, fchmod, linkat, renameat_with, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use uuid::Uuid;

use super::beneath::{create, open_to_read};
use super::node::FileNode;
use super::root::{Root, TRASH};
use crate::hex::{from_hex, hex};
use crate::mac::{MacKey, Signing};

/// The name of its file.
const NAME: &str = ".key";

/// Its length in bytes.
const LENGTH: usize = 32;

/// How many digits a token has.
pub(super) const TOKEN: usize = 32;

/// The key, read.
#[derive(Clone)]
pub(super) struct StoreKey {
    mac: MacKey,
    /// What is in the file, to be put back there.
    secret: [u8; LENGTH],
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl StoreKey {
    /// The key of this directory; the first who asks makes it.
    pub(super) fn of(root: &Root) -> io::Result<Self> {
        // Another bridge may be faster, or empty the trash in which ours is written.
        for _ in 0..3 {
            if let Some(key) = Self::read(root)? {
                return Ok(key);
            }
            // 244 of these bits are random, by the generator of the system.
            let secret = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
            match put(root, &secret) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => made?,
            }
        }
        Err(io::Error::other(format!("`{NAME}` is removed again and again")))
    }

    /// Puts this key into the directory if that has none: what it signed and named stays good. Gives the
    /// one that is there.
    pub(super) fn restore(&self, root: &Root) -> io::Result<Self> {
        if let Some(there) = Self::read(root)? {
            return Ok(there);
        }
        put(root, &self.secret)?;
        Ok(Self::read(root)?.unwrap_or_else(|| self.clone()))
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.secret == other.secret
    }

    fn read(root: &Root) -> io::Result<Option<Self>> {
        let file = match open_to_read(root.fd(), NAME.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let node = FileNode::of(&file)?;
        if node.kind != FileType::RegularFile
            || node.owner != geteuid().as_raw()
            || node.size != LENGTH as u64
        {
            return Err(io::Error::other(format!(
                "`{NAME}` is no key of ours; remove it, and every session begins with an empty folder"
            )));
        }
        if node.mode & 0o077 != 0 {
            fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        }
        let mut secret = [0; LENGTH];
        File::from(file).read_exact(&mut secret)?;
        Ok(Some(Self { mac: MacKey::new(&secret), secret }))
    }

    /// The name of a session's folder: 64 digits that tell nobody whose it is.
    pub(super) fn name_of(&self, server: &str, key: &str) -> String {
        let name = self.mac.begin("").part(server.as_bytes()).last(key.as_bytes()).finish();
        hex(&name)
    }

    /// A secret for another use, which tells nothing of this one.
    pub(super) fn secret_for(&self, label: &str) -> [u8; 32] {
        self.mac.begin(label).finish()
    }

    /// What opens the newest version of one file of a session's folder: 32 digits that nobody can work
    /// out for another file.
    pub(super) fn token_of(&self, space: &str, path: &str) -> String {
        let token = self.token(space, path).finish();
        hex(&token[..TOKEN / 2])
    }

    /// Whether this is the token of that file.
    pub(super) fn opens(&self, token: &str, space: &str, path: &str) -> bool {
        let bytes = from_hex::<{ TOKEN / 2 }>(token);
        bytes.is_some_and(|bytes| self.token(space, path).matches(&bytes))
    }

    fn token(&self, space: &str, path: &str) -> Signing {
        self.mac.begin("pontoon newest file 1").part(space.as_bytes()).last(path.as_bytes())
    }
}

/// Puts a key in its place, whole; one that is there stays.
fn put(root: &Root, secret: &[u8]) -> io::Result<()> {
    // What is left there by a bridge that was killed is collected.
    let trash = root.folder(TRASH)?;
    let draft = Uuid::new_v4().to_string();
    let mut file = File::from(create(&trash, &draft)?);
    let written = file.write_all(secret).and_then(|()| file.sync_all());
    let placed = written.and_then(|()| {
        match renameat_with(&trash, &draft, root.fd(), NAME, RenameFlags::NOREPLACE) {
            // Not every file system can.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                linkat(&trash, &draft, root.fd(), NAME, AtFlags::empty())
            }
            renamed => renamed,
        }
        .map_err(io::Error::from)
    });
    let _gone = unlinkat(&trash, &draft, AtFlags::empty());
    match placed {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        placed => placed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    /// The name that a session has with the key of a directory prepared like this, or an error.
    fn check(prepare: impl Fn(&Path), expected: Result<Option<&str>, &str>) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("jobs");
        let root = Root::make(&path, false).unwrap();
        prepare(&path.join(NAME));
        let found = StoreKey::of(&root).map(|key| key.name_of("excel", "user 1"));
        match (found, expected) {
            (Ok(name), Ok(expected)) => {
                assert!(expected.is_none_or(|expected| expected == name), "{name}");
                assert_eq!(StoreKey::of(&root).unwrap().name_of("excel", "user 1"), name);
                let mode = fs::metadata(path.join(NAME)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                assert_eq!(fs::read_dir(path.join(TRASH)).unwrap().count(), 0);
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_made_once_and_kept() {
        check(|_| {}, Ok(None));
        // By Python's `hmac`.
        let name = "c679c5ee35ccb1d64bc35e23b465a8ba820ebc9f9fd6f4f7b61441938102c760";
        check(|path| fs::write(path, [7; LENGTH]).unwrap(), Ok(Some(name)));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        check(|path| fs::write(path, "short").unwrap(), Err("is no key of ours; remove it"));
        check(|path| fs::create_dir(path).unwrap(), Err("is no key of ours; remove it"));
        check(|path| symlink("/etc/hostname", path).unwrap(), Err(""));
    }

    #[test]
    fn bridges_that_begin_together_have_one_key() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let name = || StoreKey::of(&root).unwrap().name_of("a", "b");
        let names: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(name)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(names.iter().all(|it| *it == names[0]), "{names:?}");
    }

    #[test]
    fn bridges_of_one_directory_have_one_secret_for_each_use() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::make(&place.path().join("jobs"), false).unwrap();
        let secret = |label| StoreKey::of(&root).unwrap().secret_for(label);
        assert_eq!(secret("a"), secret("a"));
        assert_ne!(secret("a"), secret("b"));
    }

    #[test]
    fn two_directories_have_different_keys() {
        let names = [(); 2].map(|()| {
            let place = tempfile::tempdir().unwrap();
            let root = Root::make(&place.path().join("jobs"), false).unwrap();
            StoreKey::of(&root).unwrap().name_of("a", "b")
        });
        assert_ne!(names[0], names[1]);
    }
}

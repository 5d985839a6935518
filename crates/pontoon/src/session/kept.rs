//! The catalogue of a server on disk, so that the next start of the bridge need not learn it first.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::SystemTime;

use super::catalog::Catalog;
use crate::plain_file::{self, Kind, remove_unfinished, write_whole};

/// More bytes than this were not written by us.
const LONGEST: u64 = 64 << 20;

/// What was kept; `None` if there is nothing, or nothing of use.
pub(super) fn read(file: &Path) -> Option<Catalog> {
    let text = match plain_file::read(file, Kind::Own, LONGEST) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), %error, "a catalogue cannot be read; its server is learnt anew");
            return None;
        }
        read => read.ok()?,
    };
    let mut catalog: Catalog = serde_json::from_slice(&text).ok()?;
    catalog.read_rules();
    Some(catalog)
}

/// Keeps it, readable by its owner only.
pub(super) fn write(file: &Path, catalog: &Catalog) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let folder = OwnedFd::from(File::open(directory)?);
    remove_unfinished(&folder, SystemTime::now())?;
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or("catalog");
    let text = serde_json::to_vec(catalog)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
    }
    write_whole(&folder, name, |out| io::Write::write_all(out, &text))
}

//! Which file the servers are read from: the one that is named, else one that lies there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::options::Options;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::settings::BridgeSettings;
use crate::plain_file::{self, FileKind};

/// More bytes than this are no list of servers.
const LONGEST_FILE: u64 = 16 << 20;

/// Where the file is looked for when nobody names one; the second is the container's.
pub(super) const DEFAULT_FILES: [&str; 2] = ["mcp-servers.json", "/app/config/mcp-servers.json"];

/// A file and its text.
type ReadFile = (PathBuf, String);

/// The file that is named, else the first of `files` that is there, if one is; `None` after a mistake.
pub(super) fn find_file(
    options: &Options,
    settings: &BridgeSettings,
    files: &[impl AsRef<Path>],
    remarks: &mut Remarks,
) -> Option<Option<ReadFile>> {
    let named = options
        .config
        .as_deref()
        .map(|path| (path, RemarkPlace::CommandLine, "--config"))
        .or_else(|| {
            Some((settings.config_file.as_deref()?, RemarkPlace::Environment, "MCPO_CONFIG_FILE"))
        });
    if let Some((path, place, key)) = named {
        return match read_file(path, FileKind::Named, remarks) {
            Ok(text) => Some(Some((path.to_owned(), text))),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", path.display());
                remarks.add(Weight::Mistake, place, key, message);
                None
            }
        };
    }
    for path in files.iter().map(AsRef::as_ref) {
        match read_file(path, FileKind::Regular, remarks) {
            Ok(text) => return Some(Some((path.to_owned(), text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A file that is there was meant, so the demo would be the wrong answer.
            Err(error) => {
                let place = RemarkPlace::File { path: path.into(), position: None };
                remarks.add(Weight::Mistake, place, "", format!("cannot be read: {error}"));
                return None;
            }
        }
    }
    Some(None)
}

fn read_file(path: &Path, kind: FileKind, remarks: &mut Remarks) -> io::Result<String> {
    let text = plain_file::read_text(path, kind, LONGEST_FILE)?;
    if fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o002 != 0) {
        let place = RemarkPlace::File { path: path.into(), position: None };
        let message = "anyone on this machine may write it and so choose what runs; chmod o-w it";
        remarks.add(Weight::Warning, place, "", message);
    }
    Ok(text)
}

//! The token that applications have to show that come by themselves.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use uuid::Uuid;

use super::terminal::tell;
use crate::config::TokenSource;
use crate::plain_file::write_whole;

/// The token for an entrance at this port: the one that was given, or one that is made once and kept, so that an application
/// has to be told once.
pub(super) fn entrance_token(
    port: u16,
    token: Option<TokenSource>,
    state_dir: Option<&Path>,
) -> Result<TokenSource, String> {
    let source = match token {
        Some(TokenSource::Command(_)) => {
            return Err("--token-command is for applications that are dialled".to_owned());
        }
        Some(source) => source,
        None => {
            let none = "there is no home for a token: use --token-env, --token-file or --no-token";
            let file = state_dir.ok_or(none)?.join("listen-token");
            let failed = |error| format!("{}: the token cannot be kept: {error}", file.display());
            keep(&file).map_err(failed)?;
            TokenSource::File(file)
        }
    };
    let shown = match &source {
        TokenSource::File(file) => format!("; the token for it is in {}", file.display()),
        TokenSource::Value(_) | TokenSource::Command(_) => String::new(),
    };
    tell(&format!("waiting for the application on ws://127.0.0.1:{port}/{shown}"));
    Ok(source)
}

/// Makes a token in this file, for its owner only, unless there is one.
fn keep(file: &Path) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if TokenSource::first_line(file).is_ok() {
        return match std::fs::metadata(file)?.mode() & 0o077 {
            0 => Ok(()),
            _ => Err(io::Error::other("others can read it: remove it, so that a new one is made")),
        };
    }
    let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let folder = OwnedFd::from(File::open(folder)?);
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or("token");
    write_whole(&folder, name, |out| out.write_all(token.as_bytes()))
}

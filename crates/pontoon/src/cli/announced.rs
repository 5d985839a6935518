//! A bridge that begins makes itself known to its user.

use std::path::PathBuf;

use crate::observe::running::{Announcement, BridgeFacts, StatusSocket};

/// Makes this bridge known to `pontoon status`, if there is a folder for that.
pub(super) fn announced(
    folders: &[PathBuf],
    kind: &str,
    address: String,
) -> Option<(Announcement, StatusSocket)> {
    let facts = BridgeFacts::of_process(kind, address);
    for folder in folders {
        match Announcement::new(folder, facts.clone()) {
            Ok(announced) => return Some(announced),
            Err(error) => {
                tracing::info!(folder = %folder.display(), %error, "`pontoon status` does not find this bridge there");
            }
        }
    }
    None
}

//! What the bridge says to people.

use std::io::{self, Write};

/// One line on standard error; the client shows it in its log.
pub(super) fn complain(what: &str) {
    let _ = writeln!(io::stderr(), "pontoon ipc: {what}");
}

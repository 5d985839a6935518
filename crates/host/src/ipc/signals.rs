//! Nothing stays when a signal ends the program, if the program wants that.

use std::io;

use super::place;

/// Removes the sockets, schema files and directories of all sessions of this process, when SIGINT, SIGTERM or
/// SIGHUP is about to end it; then the signal ends it, as it would have. To be called once, best in `main`.
///
/// A signal that the program ignores or has a handler for, now or later, is the program's: it lives on, and so
/// do its sessions, until it stops or drops them. The library never does this by itself, and what a killed
/// program leaves is removed by the next session.
///
/// # Errors
///
/// When there is no pipe or no thread to be had. A second call does nothing.
pub fn clean_up_on_signals() -> io::Result<()> {
    match pontoon_supervise::before_a_signal_ends_us(place::remove_all) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

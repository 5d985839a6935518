//! The end of `serve`: the first signal asks for it, the second insists, and after a while time does too.
//!
//! Signals are heard by a thread with a runtime of its own, so that nothing that hangs in the bridge, its own
//! end included, keeps them from being heard. When the process ends, the helper process sees that it is
//! gone and kills every child; one that was stopped does so when it goes on.

use std::io;
use std::process::exit;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::terminal::tell;

/// The bridge ends within this time after the first signal, whatever hangs. Open calls have 30 s of it and children 17 s;
/// the units in `deploy` give it 60 s.
const LONGEST: Duration = Duration::from_secs(55);

/// Begins to hear SIGTERM and SIGINT. The token fires at the first one.
///
/// # Errors
///
/// When the system gives no thread, or does not let us hear signals.
pub(super) fn begin() -> io::Result<CancellationToken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = CancellationToken::new();
    let first = asked.clone();
    let (mut terminate, mut interrupt) = {
        let _runtime = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let mut heard = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let hearing = async move {
        heard().await;
        first.cancel();
        match tokio::time::timeout(LONGEST, heard()).await {
            Ok(()) => exit(130),
            Err(_) => {
                let seconds = LONGEST.as_secs();
                tell(&format!("error: the bridge had not ended {seconds} s after the signal"));
                exit(1)
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(hearing))?;
    Ok(asked)
}

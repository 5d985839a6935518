//! The socket where a running bridge tells its user how it is: a word comes in, and all of it goes out as JSON.
//!
//! It holds nothing up: each look has its own task and little time, and few are taken at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many are taken at once.
const MOST: usize = 8;

/// The pause after a connection that could not be taken, for want of descriptors perhaps.
const FAULT: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusLook {
    /// How the bridge is.
    Status,
    /// The same, and the last messages.
    Messages,
}

impl StatusLook {
    /// The byte by which it is asked for.
    pub fn letter(self) -> u8 {
        match self {
            Self::Status => b's',
            Self::Messages => b'm',
        }
    }
}

/// Answers those who ask, as long as it is polled.
pub async fn serve<T, F>(listener: UnixListener, tell: T)
where
    T: Fn(StatusLook) -> F + Send + Sync + 'static,
    F: Future<Output = Value> + Send,
{
    let (tell, room) = (Arc::new(tell), Arc::new(Semaphore::new(MOST)));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a look at the status could not be taken");
                tokio::time::sleep(FAULT).await;
                continue;
            }
        };
        let tell = Arc::clone(&tell);
        tokio::spawn(async move {
            // One that asks and goes away is no fault.
            drop(tokio::time::timeout(PATIENCE, answer(stream, &*tell)).await);
            drop(permit);
        });
    }
}

async fn answer<T, F>(mut stream: UnixStream, tell: &T) -> io::Result<()>
where
    T: Fn(StatusLook) -> F,
    F: Future<Output = Value>,
{
    // The folder of the socket is closed to others already.
    if stream.peer_cred()?.uid() != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let letter = stream.read_u8().await?;
    let look =
        [StatusLook::Status, StatusLook::Messages].into_iter().find(|look| look.letter() == letter);
    let told = tell(look.unwrap_or(StatusLook::Status)).await;
    stream.write_all(told.to_string().as_bytes()).await?;
    stream.shutdown().await
}

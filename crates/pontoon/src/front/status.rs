//! The socket where a running bridge tells its user how it is: who says its word and a letter
//! hears all of it as JSON, and every other one nothing.
//!
//! It holds nothing up: each look has its own task and little time, and few are taken at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::observe::running::{StatusSocket, StatusWord};

/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the word and the letter may take: those that say nothing stand in the way of others.
const FIRST_BYTES: Duration = Duration::from_secs(1);

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
pub async fn serve<T, F>(socket: StatusSocket, tell: T)
where
    T: Fn(StatusLook) -> F + Send + Sync + 'static,
    F: Future<Output = Value> + Send,
{
    let StatusSocket { listener, word } = socket;
    let (tell, room) = (Arc::new((word, tell)), Arc::new(Semaphore::new(MOST)));
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
            let (word, tell) = &*tell;
            drop(tokio::time::timeout(PATIENCE, answer(stream, word, tell)).await);
            drop(permit);
        });
    }
}

async fn answer<T, F>(mut stream: UnixStream, word: &StatusWord, tell: &T) -> io::Result<()>
where
    T: Fn(StatusLook) -> F,
    F: Future<Output = Value>,
{
    // The folder of the socket is closed to others already. A confined server of this user can connect nevertheless, but
    // does not know the word.
    if stream.peer_cred()?.uid() != geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut first = [0; StatusWord::LENGTH + 1];
    tokio::time::timeout(FIRST_BYTES, stream.read_exact(&mut first)).await??;
    let [said @ .., letter] = first;
    if !word.is(&said) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let look =
        [StatusLook::Status, StatusLook::Messages].into_iter().find(|look| look.letter() == letter);
    let told = tell(look.unwrap_or(StatusLook::Status)).await;
    stream.write_all(told.to_string().as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as Listener;
    use std::path::Path;

    use serde_json::json;
    use tokio::net::UnixListener;

    use super::*;

    /// A bridge that is asked at this path, and its word.
    fn bridge(path: &Path) -> StatusWord {
        let listener = Listener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (listener, word) = (UnixListener::from_std(listener).unwrap(), StatusWord::random());
        let socket = StatusSocket { listener, word: word.clone() };
        let tell = |look| std::future::ready(json!(look == StatusLook::Messages));
        tokio::spawn(serve(socket, tell));
        word
    }

    /// What the bridge says to these bytes until it hangs up.
    async fn said_to(path: &Path, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        // One that was closed already takes no more.
        drop(stream.write_all(bytes).await);
        let mut said = Vec::new();
        drop(stream.read_to_end(&mut said).await);
        String::from_utf8(said).unwrap()
    }

    #[tokio::test]
    async fn only_those_who_know_the_word_hear_anything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let word = bridge(&path);
        let right = word.as_bytes();
        assert_eq!(said_to(&path, &[right, b"s"].concat()).await, "false");
        assert_eq!(said_to(&path, &[right, b"m"].concat()).await, "true");
        let mut wrong = right.to_vec();
        wrong[31] ^= 1;
        let other = StatusWord::random();
        for word in [&wrong, other.as_bytes(), b"", b"m"] {
            assert_eq!(said_to(&path, &[word, b"m"].concat()).await, "", "{word:?}");
        }
    }

    #[tokio::test]
    async fn those_that_say_nothing_are_soon_sent_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let word = bridge(&path);
        let mut silent = Vec::new();
        for _ in 0..MOST {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        let asked = [word.as_bytes(), b"s"].concat();
        let said = tokio::time::timeout(PATIENCE / 2, said_to(&path, &asked)).await;
        assert_eq!(said.expect("it is not kept waiting"), "false");
    }
}

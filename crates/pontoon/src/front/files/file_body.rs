//! A part of a file as a response body, read in pieces and away from the threads that serve.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::task::JoinHandle;

/// The largest piece. One is in memory for each download.
const PIECE: u64 = 64 * 1024;

/// A part of a file, of a length that was promised before the first byte.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    /// What is still to be sent.
    part: Range<u64>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileBody {
    /// These bytes of a file.
    pub fn new(file: File, part: Range<u64>) -> Self {
        Self { file: Arc::new(file), part, reading: None }
    }

    /// How many bytes are still to be sent.
    pub fn left(&self) -> u64 {
        self.part.end.saturating_sub(self.part.start)
    }

    /// The next piece. A file that has become shorter is an error: what is missing cannot be sent.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let left = self.left();
        if left == 0 {
            return Poll::Ready(None);
        }
        let (file, start) = (&self.file, self.part.start);
        let reading = self.reading.get_or_insert_with(|| {
            let file = Arc::clone(file);
            tokio::task::spawn_blocking(move || {
                let length = usize::try_from(left.min(PIECE)).expect("a piece is small");
                let mut piece = BytesMut::zeroed(length);
                file.read_exact_at(&mut piece, start)?;
                Ok(piece.freeze())
            })
        });
        let piece = ready!(Pin::new(reading).poll(context))
            .unwrap_or_else(|ended| Err(io::Error::other(ended)));
        self.reading = None;
        match &piece {
            Ok(bytes) => self.part.start += bytes.len() as u64,
            Err(error) => {
                tracing::debug!(%error, "a download broke off: its file has changed");
                self.part.end = self.part.start;
            }
        }
        Poll::Ready(Some(piece))
    }
}

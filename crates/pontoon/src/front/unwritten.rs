//! What is on its way to a client over a stream of its own: lines, or frames.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use pontoon_wire::Text;
use tokio::io::AsyncWrite;

/// Up to this size a message is written in one piece.
const SMALL: usize = 64 * 1024;

/// So many pieces are written in one go, at most.
const MAX_SLICES: usize = 16;

/// What is on its way to a client. Large messages are not copied.
#[derive(Debug, Default)]
pub struct Unwritten {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Unwritten {
    /// Whether everything was written.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many bytes are still to be written.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Adds a message with what its form wants before and behind it.
    pub fn put(&mut self, before: &[u8], message: &Text, behind: &[u8]) {
        let size = message.len();
        if size > SMALL {
            self.push(Bytes::copy_from_slice(before));
            message.pieces().iter().for_each(|piece| self.push(piece.clone()));
            return self.push(Bytes::copy_from_slice(behind));
        }
        let mut whole = BytesMut::with_capacity(before.len() + size + behind.len());
        whole.extend_from_slice(before);
        message.pieces().iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.extend_from_slice(behind);
        self.push(whole.freeze());
    }

    /// Adds these bytes as they are.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Writes all of it. Cancel safe: what was written is taken out at once.
    ///
    /// # Errors
    ///
    /// Those of the stream, and one that takes nothing more.
    pub async fn write_to(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_write_to(output, context)).await
    }

    /// The same as a poll function, for a stream that is read by the same task.
    pub fn poll_write_to(
        &mut self,
        output: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(first) = self.pieces.front() {
            let written = match self.pieces.len() {
                1 => Pin::new(&mut *output).poll_write(context, first),
                _ => {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let mut count = 0;
                    for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                        *slice = IoSlice::new(piece);
                        count += 1;
                    }
                    Pin::new(&mut *output).poll_write_vectored(context, &slices[..count])
                }
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.forget(written),
            }
        }
        Pin::new(output).poll_flush(context)
    }

    /// Takes out what was written.
    fn forget(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.pieces.front_mut() {
            if written < first.len() {
                return first.advance(written);
            }
            written -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn messages_come_out_whole_and_in_order_however_little_is_taken() {
        let large =
            Text::Pieces(vec![vec![b'a'; SMALL].into(), Bytes::new(), vec![b'b'; 9].into()]);
        let mut unwritten = Unwritten::default();
        let mut expected = Vec::new();
        for _ in 0..MAX_SLICES {
            for message in [&large, &Text::Whole(Bytes::from_static(b"{}"))] {
                unwritten.put(b"<", message, b">");
                expected.extend_from_slice(b"<");
                message.pieces().iter().for_each(|piece| expected.extend_from_slice(piece));
                expected.extend_from_slice(b">");
            }
        }
        assert_eq!(unwritten.len(), expected.len());
        let (mut ours, mut theirs) = tokio::io::duplex(1000);
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            theirs.read_to_end(&mut read).await.map(|_| read)
        });
        unwritten.write_to(&mut ours).await.unwrap();
        assert_eq!((unwritten.is_empty(), unwritten.len()), (true, 0));
        drop(ours);
        assert!(reading.await.unwrap().unwrap() == expected);
    }
}

//! What carries the frames of a conversation: the pipes of a process, a socket with a message on each line, or a
//! WebSocket with a message in each frame.
//!
//! A caller of `ask` writes to pipes and sockets itself, as far as they have room. A WebSocket is written by the task of
//! the link alone, which takes whole messages from a queue.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::BytesMut;
use pontoon_supervise::{ChildInput, ChildOutput};
use pontoon_wire::framing::lines::Lines;
use tokio::io::AsyncReadExt;
use tokio::net::{tcp, unix};

use super::channel::MessageChannel;
use super::websocket::{RoundTrip, SocketEvent, WebSocket};

/// Both directions of what carries a conversation.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// The pipes of a process.
    Pipes(ChildInput, ChildOutput),
    /// A TCP connection with a message on each line.
    Tcp(tokio::net::TcpStream),
    /// A Unix socket with a message on each line.
    Unix(tokio::net::UnixStream),
    /// A WebSocket.
    WebSocket(Box<WebSocket>),
    /// Queues to what sends each message in a way of its own, such as HTTP.
    Channel(Box<MessageChannel>),
}

impl Carrier {
    /// Where it says how long pings take, if it has any.
    pub(super) fn round_trip(&self) -> Option<Arc<RoundTrip>> {
        match self {
            Self::WebSocket(socket) => Some(socket.round_trip()),
            Self::Pipes(..) | Self::Tcp(_) | Self::Unix(_) | Self::Channel(_) => None,
        }
    }

    pub(super) fn split(self) -> (FrameInput, FrameOutput) {
        match self {
            Self::Pipes(input, output) => (FrameInput::Pipe(input), FrameOutput::Pipe(output)),
            Self::Tcp(stream) => {
                let (output, input) = stream.into_split();
                (FrameInput::Tcp(input), FrameOutput::Tcp(output))
            }
            Self::Unix(stream) => {
                let (output, input) = stream.into_split();
                (FrameInput::Unix(input), FrameOutput::Unix(output))
            }
            Self::WebSocket(socket) => (FrameInput::Queue, FrameOutput::WebSocket(socket)),
            Self::Channel(channel) => (FrameInput::Queue, FrameOutput::Channel(channel)),
        }
    }
}

/// Where frames go to.
#[derive(Debug)]
pub(crate) enum FrameInput {
    Pipe(ChildInput),
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    /// Whole messages wait for the task of the link.
    Queue,
}

impl FrameInput {
    /// Writes as much as there is room for. Nothing is written to a queue.
    pub(super) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write_vectored(pieces),
            Self::Tcp(half) => half.try_write_vectored(pieces),
            Self::Unix(half) => half.try_write_vectored(pieces),
            Self::Queue => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Waits until there is room, or it is broken: that shows again at the next write, which then gives up.
    pub(super) async fn writable(&self) {
        drop(match self {
            Self::Pipe(pipe) => pipe.writable().await,
            Self::Tcp(half) => half.writable().await,
            Self::Unix(half) => half.writable().await,
            Self::Queue => std::future::pending().await,
        });
    }

    pub(super) fn is_queue(&self) -> bool {
        matches!(self, Self::Queue)
    }
}

/// Where frames come from.
#[derive(Debug)]
pub(crate) enum FrameOutput {
    Pipe(ChildOutput),
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    WebSocket(Box<WebSocket>),
    Channel(Box<MessageChannel>),
}

/// What was read.
#[derive(Debug)]
pub(super) enum FrameRead {
    /// More bytes of lines, which are in the buffer now.
    Bytes,
    /// A whole message.
    Frame(BytesMut),
    /// Nothing, but there is room to write again.
    Nothing,
    /// The end.
    End,
}

impl From<SocketEvent> for FrameRead {
    fn from(event: SocketEvent) -> Self {
        match event {
            SocketEvent::Frame(frame) => Self::Frame(frame),
            SocketEvent::Room => Self::Nothing,
            SocketEvent::End => Self::End,
        }
    }
}

impl FrameOutput {
    /// What comes next. Cancel safe: what was read in part waits in the buffer or the socket.
    pub(super) async fn next(&mut self, lines: &mut Lines) -> FrameRead {
        let read = match self {
            Self::Pipe(pipe) => pipe.read_buf(lines.buffer()).await,
            Self::Tcp(half) => half.read_buf(lines.buffer()).await,
            Self::Unix(half) => half.read_buf(lines.buffer()).await,
            Self::WebSocket(socket) => return socket.next_event().await.into(),
            Self::Channel(channel) => return channel.next_event().await.into(),
        };
        match read {
            Ok(0) | Err(_) => FrameRead::End,
            Ok(_) => FrameRead::Bytes,
        }
    }

    /// Whether it is a socket with a message on each line.
    pub(super) fn is_socket(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Unix(_))
    }

    /// Lets a server write a long line in fewer turns. Where that is not possible, nothing changes.
    pub(super) fn widen(&self) {
        #[cfg(target_os = "linux")]
        if let Self::Pipe(pipe) = self {
            const WIDE: usize = 1024 * 1024;
            if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, WIDE) {
                tracing::trace!(%error, "the pipe keeps its size");
            }
        }
    }
}

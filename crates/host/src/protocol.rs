//! What a program and its bridges say to each other over the socket.
//!
//! Each message is a frame: four bytes of length, big-endian, then that many bytes of JSON, an object. A
//! bridge asks `{"method":"call_tool","params":{"name","arguments"}}` and hears
//! `{"result":{"content",...}}` or `{"error":{"message","type"}}`.
//!
//! A request may have an `id`, a whole number. Then so has its answer, and several calls may be under way;
//! without one they are answered in their order. Where there are ids, the bridge may also send
//! `{"method":"cancel","params":{"id"}}`, and the program
//! `{"method":"progress","params":{"id","progress","total","message"}}` and `{"method":"tools_changed"}`.

use std::io;

use pontoon_wire::framing::frames::{self, FrameTooLong, PREFIX_BYTES};

/// The longest message, without its length.
pub const MAX_MESSAGE_SIZE: usize = 10_485_760;

/// How many bytes the length takes.
pub const LENGTH_PREFIX_SIZE: usize = PREFIX_BYTES;

/// The permissions of the socket and of the schema file: for their owner only.
pub const SOCKET_PERMISSIONS: u32 = 0o600;

/// How the name of a socket begins.
pub const SOCKET_FILE_PREFIX: &str = "claudecode_ipc_";

/// How the name of a socket ends.
pub const SOCKET_FILE_SUFFIX: &str = ".sock";

/// How the name of a schema file begins.
pub const SCHEMA_FILE_PREFIX: &str = "claudecode_ipc_schema_";

/// Why a tool could not be called over the socket, or what became of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IpcError {
    /// The other side cannot be reached, or was lost.
    #[error("{0}")]
    Connection(String),
    /// A message is longer than it may be.
    #[error("{0}")]
    MessageSize(#[from] FrameTooLong),
    /// A tool failed.
    #[error("{message}")]
    ToolExecution {
        /// The kind of failure, a name.
        kind: String,
        /// What failed.
        message: String,
    },
    /// The bridge process cannot do its work.
    #[error("{0}")]
    BridgeStartup(String),
    /// The other side sent what it should not.
    #[error("{0}")]
    Protocol(String),
    /// The system refused something.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl IpcError {
    /// The name of the kind of error on the wire.
    pub fn wire_type(&self) -> &str {
        match self {
            Self::Connection(_) => "IPCConnectionError",
            Self::MessageSize(_) => "IPCMessageSizeError",
            Self::ToolExecution { kind, .. } => kind,
            Self::BridgeStartup(_) => "BridgeStartupError",
            Self::Protocol(_) | Self::Io { .. } => "IPCError",
        }
    }
}

/// A frame with this JSON text.
///
/// # Errors
///
/// [`FrameTooLong`] when the other side would refuse it.
pub(crate) fn frame(pieces: &[&[u8]]) -> Result<Vec<u8>, FrameTooLong> {
    let length = pieces.iter().map(|piece| piece.len()).sum();
    let prefix = frames::prefix(length, MAX_MESSAGE_SIZE)?;
    let mut frame = Vec::with_capacity(PREFIX_BYTES + length);
    frame.extend_from_slice(&prefix);
    pieces.iter().for_each(|piece| frame.extend_from_slice(piece));
    Ok(frame)
}

/// The text of an error answer; `id` is empty or `"id":7,`.
#[cfg(feature = "tools")]
pub(crate) fn error(id: &str, kind: &str, message: &str) -> String {
    let [message, kind] = [message, kind].map(pontoon_wire::quoted);
    format!("{{{id}\"error\":{{\"message\":{message},\"type\":{kind}}}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_those_of_the_contract() {
        assert_eq!((MAX_MESSAGE_SIZE, LENGTH_PREFIX_SIZE), (10 * 1024 * 1024, 4));
        assert_eq!(SOCKET_PERMISSIONS, 0o600);
        let names = [SOCKET_FILE_PREFIX, SOCKET_FILE_SUFFIX, SCHEMA_FILE_PREFIX];
        assert_eq!(names, ["claudecode_ipc_", ".sock", "claudecode_ipc_schema_"]);
    }

    #[test]
    fn errors_have_the_names_of_the_contract() {
        let text = || "why".to_owned();
        let too_long = frames::prefix(11, 10).expect_err("it is too long");
        let of_tool =
            IpcError::ToolExecution { kind: "ToolExecutionError".to_owned(), message: text() };
        let names = [
            (IpcError::Connection(text()), "IPCConnectionError"),
            (IpcError::MessageSize(too_long), "IPCMessageSizeError"),
            (of_tool, "ToolExecutionError"),
            (IpcError::BridgeStartup(text()), "BridgeStartupError"),
            (IpcError::Protocol(text()), "IPCError"),
        ];
        for (error, name) in names {
            assert_eq!(error.wire_type(), name);
        }
    }
}

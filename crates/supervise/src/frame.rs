//! The frames between the program and its spawner process: orders one way, reports the other.
//!
//! A frame has a fixed size, so that a reader never takes bytes, or descriptors, of the next one.
//! Only the order to spawn is followed by more: as many bytes as it says, a packed command.

use crate::Exit;

/// The size of every frame.
pub(crate) const FRAME_BYTES: usize = 24;

/// Which child a frame is about. Numbers are never used twice.
pub(crate) type Number = u64;

/// What the program wants of the spawner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start a child from the `length` bytes that follow and the three descriptors beside it.
    Spawn { child: Number, length: u32 },
    /// Send a signal to a child's group.
    Signal { child: Number, signal: i32 },
}

/// What the spawner tells the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The child runs its program.
    Started { child: Number, pid: u32 },
    /// There is no child, because `step` failed with `errno`.
    Failed { child: Number, step: Step, errno: i32 },
    /// The child and all it started have ended.
    Ended { child: Number, exit: Exit },
}

/// The steps of starting a child that can fail in the spawner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Taking over the order and its descriptors.
    Receive = 1,
    Fork,
    Group,
    Limits,
    Streams,
    Directory,
    Exec,
}

impl Step {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        [
            Self::Receive,
            Self::Fork,
            Self::Group,
            Self::Limits,
            Self::Streams,
            Self::Directory,
            Self::Exec,
        ]
        .into_iter()
        .find(|step| *step as i32 == number)
    }
}

impl Order {
    pub(crate) fn encode(self) -> [u8; FRAME_BYTES] {
        match self {
            Self::Spawn { child, length } => encode(1, length.cast_signed(), 0, child),
            Self::Signal { child, signal } => encode(2, signal, 0, child),
        }
    }

    /// `None` for bytes no spawner handle sends.
    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Self> {
        match decode(bytes) {
            (1, length, _, child) => Some(Self::Spawn { child, length: length.cast_unsigned() }),
            (2, signal, _, child) => Some(Self::Signal { child, signal }),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn encode(self) -> [u8; FRAME_BYTES] {
        match self {
            Self::Started { child, pid } => encode(1, pid.cast_signed(), 0, child),
            Self::Failed { child, step, errno } => encode(2, step as i32, errno, child),
            Self::Ended { child, exit: Exit::Code(code) } => encode(3, code, 0, child),
            Self::Ended { child, exit: Exit::Signal(signal) } => encode(4, signal, 0, child),
            Self::Ended { child, exit: Exit::Unknown } => encode(5, 0, 0, child),
        }
    }

    /// `None` for bytes no spawner sends.
    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Self> {
        Some(match decode(bytes) {
            (1, pid, _, child) => Self::Started { child, pid: pid.cast_unsigned() },
            (2, step, errno, child) => {
                Self::Failed { child, step: Step::from_number(step)?, errno }
            }
            (3, code, _, child) => Self::Ended { child, exit: Exit::Code(code) },
            (4, signal, _, child) => Self::Ended { child, exit: Exit::Signal(signal) },
            (5, _, _, child) => Self::Ended { child, exit: Exit::Unknown },
            _ => return None,
        })
    }
}

// Both ends are one program on one machine, so the byte order is whatever the machine has.

fn encode(kind: u32, first: i32, second: i32, child: Number) -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    bytes[0..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..8].copy_from_slice(&first.to_ne_bytes());
    bytes[8..12].copy_from_slice(&second.to_ne_bytes());
    bytes[16..24].copy_from_slice(&child.to_ne_bytes());
    bytes
}

fn decode(bytes: &[u8; FRAME_BYTES]) -> (u32, i32, i32, Number) {
    let four = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let mut child = [0; 8];
    child.copy_from_slice(&bytes[16..24]);
    (
        u32::from_ne_bytes(four(0)),
        i32::from_ne_bytes(four(4)),
        i32::from_ne_bytes(four(8)),
        Number::from_ne_bytes(child),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_comes_back_as_it_went() {
        let child = 1 << 40;
        for order in [
            Order::Spawn { child, length: u32::MAX },
            Order::Signal { child, signal: libc::SIGKILL },
        ] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        for report in [
            Report::Started { child, pid: 4_000_000 },
            Report::Failed { child, step: Step::Exec, errno: libc::ENOENT },
            Report::Ended { child, exit: Exit::Code(-1) },
            Report::Ended { child, exit: Exit::Signal(9) },
            Report::Ended { child, exit: Exit::Unknown },
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn an_unknown_frame_is_nothing() {
        assert_eq!(Order::decode(&[0; FRAME_BYTES]), None);
        assert_eq!(Report::decode(&[255; FRAME_BYTES]), None);
    }
}

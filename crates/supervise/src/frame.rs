//! The frames between the program and its spawner process: orders one way, reports the other.
//!
//! A frame has a fixed size, so that a reader never takes bytes, or descriptors, of the next one.
//! Only the order to spawn is followed by more: as many bytes as it says, a packed command.

use std::time::Duration;

use crate::{Exit, Restriction};

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
    /// Count what a child leaves behind when it ends.
    CountLeft { child: Number },
}

/// What the spawner tells the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The child runs its program.
    Started { child: Number, pid: u32 },
    /// There is no child, because `step` failed with `errno`.
    Failed { child: Number, step: Step, errno: i32 },
    /// The child left so many processes behind; comes before its end, if that was asked for.
    Left { child: Number, count: u32 },
    /// The child and all it started have ended, and computed for this long together.
    Ended { child: Number, exit: Exit, computed: Duration },
}

/// The steps of starting a child that can fail in the spawner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Taking over the order and its descriptors.
    Receive,
    Fork,
    Group,
    Limits,
    Streams,
    Directory,
    Exec,
    /// Applying a restriction.
    Restrict(Restriction),
    /// Opening one of the paths it may reach: its place among those to read, then to write.
    FilePath(u32),
}

/// The steps without an own number, in the order of their numbers.
const STEPS: [Step; 16] = [
    Step::Receive,
    Step::Fork,
    Step::Group,
    Step::Limits,
    Step::Streams,
    Step::Directory,
    Step::Exec,
    Step::Restrict(Restriction::Files),
    Step::Restrict(Restriction::Calls),
    Step::Restrict(Restriction::Network),
    Step::Restrict(Restriction::User),
    Step::Restrict(Restriction::Memory),
    Step::Restrict(Restriction::Processes),
    Step::Restrict(Restriction::Cpu),
    Step::Restrict(Restriction::Cgroup),
    Step::Restrict(Restriction::Capabilities),
];

/// Added to the place of a path.
const FIRST_PATH: u32 = 1000;

impl Step {
    /// Its number on the way. Neither allocates nor panics: it is called between fork and exec.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::FilePath(place) => FIRST_PATH.saturating_add(place).cast_signed(),
            step => (0..).zip(STEPS).find_map(|(n, it)| (it == step).then_some(n)).unwrap_or(-1),
        }
    }

    pub(crate) fn from_number(number: i32) -> Option<Self> {
        let number = u32::try_from(number).ok()?;
        match number.checked_sub(FIRST_PATH) {
            Some(place) => Some(Self::FilePath(place)),
            None => STEPS.get(usize::try_from(number).ok()?).copied(),
        }
    }
}

impl Order {
    pub(crate) fn encode(self) -> [u8; FRAME_BYTES] {
        match self {
            Self::Spawn { child, length } => encode(1, length.cast_signed(), 0, child),
            Self::Signal { child, signal } => encode(2, signal, 0, child),
            Self::CountLeft { child } => encode(3, 0, 0, child),
        }
    }

    /// `None` for bytes no spawner handle sends.
    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Self> {
        match decode(bytes) {
            (1, length, _, child) => Some(Self::Spawn { child, length: length.cast_unsigned() }),
            (2, signal, _, child) => Some(Self::Signal { child, signal }),
            (3, _, _, child) => Some(Self::CountLeft { child }),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn encode(self) -> [u8; FRAME_BYTES] {
        match self {
            Self::Started { child, pid } => encode(1, pid.cast_signed(), 0, child),
            Self::Failed { child, step, errno } => encode(2, step.number(), errno, child),
            Self::Ended { child, exit, computed } => {
                let (kind, first) = match exit {
                    Exit::Code(code) => (3, code),
                    Exit::Signal(signal) => (4, signal),
                    Exit::Unknown => (5, 0),
                    Exit::OutOfMemory => (6, 0),
                };
                let mut bytes = encode(kind, first, 0, child);
                let micros = u64::try_from(computed.as_micros()).unwrap_or(u64::MAX);
                bytes[8..16].copy_from_slice(&micros.to_ne_bytes());
                bytes
            }
            Self::Left { child, count } => encode(7, count.cast_signed(), 0, child),
        }
    }

    /// `None` for bytes no spawner sends.
    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Self> {
        let ended = |child, exit| {
            let mut micros = [0; 8];
            micros.copy_from_slice(&bytes[8..16]);
            let computed = Duration::from_micros(u64::from_ne_bytes(micros));
            Self::Ended { child, exit, computed }
        };
        Some(match decode(bytes) {
            (1, pid, _, child) => Self::Started { child, pid: pid.cast_unsigned() },
            (2, step, errno, child) => {
                Self::Failed { child, step: Step::from_number(step)?, errno }
            }
            (3, code, _, child) => ended(child, Exit::Code(code)),
            (4, signal, _, child) => ended(child, Exit::Signal(signal)),
            (5, _, _, child) => ended(child, Exit::Unknown),
            (6, _, _, child) => ended(child, Exit::OutOfMemory),
            (7, count, _, child) => Self::Left { child, count: count.cast_unsigned() },
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
        let computed = Duration::from_micros(u64::MAX - 1);
        for order in [
            Order::Spawn { child, length: u32::MAX },
            Order::Signal { child, signal: libc::SIGKILL },
            Order::CountLeft { child },
        ] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        for report in [
            Report::Started { child, pid: 4_000_000 },
            Report::Failed { child, step: Step::Exec, errno: libc::ENOENT },
            Report::Ended { child, exit: Exit::Code(-1), computed },
            Report::Ended { child, exit: Exit::Signal(9), computed: Duration::ZERO },
            Report::Ended { child, exit: Exit::OutOfMemory, computed },
            Report::Ended { child, exit: Exit::Unknown, computed },
            Report::Left { child, count: 3 },
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn every_step_comes_back_as_it_went() {
        for step in STEPS.into_iter().chain([Step::FilePath(0), Step::FilePath(70_000)]) {
            assert_eq!(Step::from_number(step.number()), Some(step));
        }
        assert_eq!(Step::from_number(-1), None);
        assert_eq!(Step::from_number(999), None);
    }

    #[test]
    fn an_unknown_frame_is_nothing() {
        assert_eq!(Order::decode(&[0; FRAME_BYTES]), None);
        assert_eq!(Report::decode(&[255; FRAME_BYTES]), None);
    }
}

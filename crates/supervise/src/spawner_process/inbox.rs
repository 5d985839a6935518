//! Orders as the spawner receives them: in pieces, with descriptors beside them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::command::MAX_PACKED_BYTES;
use crate::frame::{FRAME_BYTES, Order};
use crate::unix;

/// Orders as they arrive, in pieces.
#[derive(Default)]
pub(super) struct Inbox {
    frame: [u8; FRAME_BYTES],
    frame_filled: usize,
    bytes: Vec<u8>,
    bytes_filled: usize,
    fds: Vec<OwnedFd>,
}

/// What [`Inbox::next`] found.
pub(super) enum Next {
    Order(Order),
    Nothing,
    End,
}

impl Inbox {
    /// Memory kept between two orders.
    const KEPT_BYTES: usize = 64 << 10;

    /// The next whole order. For one to spawn, [`Inbox::take_spawn`] has the rest of it.
    pub(super) fn next(&mut self, socket: &OwnedFd) -> io::Result<Next> {
        loop {
            let room = if self.frame_filled < FRAME_BYTES {
                &mut self.frame[self.frame_filled..]
            } else {
                &mut self.bytes[self.bytes_filled..]
            };
            if !room.is_empty() {
                match unix::receive(socket.as_fd(), room, &mut self.fds) {
                    Ok(0) => return Ok(Next::End),
                    Ok(size) if self.frame_filled < FRAME_BYTES => self.frame_filled += size,
                    Ok(size) => self.bytes_filled += size,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Next::Nothing);
                    }
                    Err(error) => return Err(error),
                }
            }
            if self.frame_filled < FRAME_BYTES {
                continue;
            }
            let Some(order) = Order::decode(&self.frame) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            if let Order::Spawn { length, .. } = order {
                let length = length as usize;
                if length > MAX_PACKED_BYTES {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if self.bytes_filled < length {
                    self.bytes.resize(length, 0);
                    continue;
                }
            }
            self.frame_filled = 0;
            return Ok(Next::Order(order));
        }
    }

    /// The packed command and the streams of the order to spawn that came last.
    pub(super) fn take_spawn(&mut self) -> (Vec<u8>, Option<[OwnedFd; unix::STREAMS]>) {
        self.bytes_filled = 0;
        let bytes = std::mem::take(&mut self.bytes);
        (bytes, std::mem::take(&mut self.fds).try_into().ok())
    }

    /// Takes back the memory of a command, unless it was an uncommonly large one.
    pub(super) fn reuse(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() <= Self::KEPT_BYTES {
            bytes.clear();
            self.bytes = bytes;
        }
    }
}

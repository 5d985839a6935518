//! What is on its way to the program: calls and cancellations, one after the other.
//!
//! One thread at a time sends. It is the one that has something to send, as long as the program takes it at
//! once; when the program does not, another thread is started that may wait. So neither the client nor the
//! program goes unheard because the other one does not listen.

use std::io;
use std::sync::Arc;

use super::connection::Connection;
use super::host::Host;
use crate::protocol::frame;

/// One message on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    what: What,
    frame: Vec<u8>,
    /// The connection on which it has begun, and how much of it is written.
    begun: Option<(Arc<Connection>, usize)>,
    /// How often a connection may still be lost on the way: what the program did not get whole it does not carry
    /// out, so that is sent again.
    tries: u32,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// The call with this id.
    Call(u64),
    /// Word that a call was given up.
    Cancel,
}

/// Whether a parcel is gone: sent, or failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Gone,
    /// The program takes no more of it now.
    Stuck,
}

impl Parcel {
    /// The program may have closed the connection since the last call, so a second one is tried.
    pub(super) fn call(id: u64, frame: Vec<u8>) -> Self {
        Self { what: What::Call(id), frame, begun: None, tries: 2 }
    }

    /// For a call that was sent on this connection.
    pub(super) fn cancel(id: u64, connection: Arc<Connection>) -> Self {
        let cancel = format!("{{\"method\":\"cancel\",\"params\":{{\"id\":{id}}}}}");
        let frame = frame(&[cancel.as_bytes()]).unwrap_or_default();
        Self { what: What::Cancel, frame, begun: Some((connection, 0)), tries: 0 }
    }

    /// The call that it is.
    pub(super) fn id(&self) -> Option<u64> {
        match self.what {
            What::Call(id) => Some(id),
            What::Cancel => None,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.frame.len()
    }

    /// Sends it, as far as the program takes it now, or whole.
    fn send(&mut self, host: &Arc<Host>, may_wait: bool) -> Progress {
        let mut last = io::Error::from(io::ErrorKind::NotConnected);
        while let Some((connection, written)) = self.begun.take().or_else(|| self.begin(host)) {
            let rest = &self.frame[written..];
            let result = match may_wait {
                true => connection.write_all(rest).map(|()| rest.len()),
                false => connection.write_now(rest),
            };
            match (result, self.what) {
                (Ok(more), _) if more < rest.len() => {
                    self.begun = Some((connection, written + more));
                    return Progress::Stuck;
                }
                (Ok(_), What::Call(id)) => {
                    host.sent(id, &connection);
                    return Progress::Gone;
                }
                (Ok(_), What::Cancel) => return Progress::Gone,
                (Err(error), _) => {
                    connection.close();
                    host.lose(connection.number);
                    last = error;
                }
            }
        }
        if let What::Call(id) = self.what {
            host.fail(id, &host.unreachable(&last));
        }
        Progress::Gone
    }

    /// The connection to send it on, unless it was given up or cannot be sent.
    fn begin(&mut self, host: &Arc<Host>) -> Option<(Arc<Connection>, usize)> {
        let What::Call(id) = self.what else { return None };
        self.tries = self.tries.checked_sub(1)?;
        if !host.is_open(id) {
            return None;
        }
        let connection = match host.connection() {
            Ok(connection) => connection,
            Err(error) => {
                host.fail(id, &error);
                return None;
            }
        };
        // From here on, giving it up closes the connection or is told on it.
        host.begin(id).then_some((connection, 0))
    }
}

impl Host {
    /// Sends what waits, unless another thread is at it: that one goes on until nothing waits.
    pub(super) fn send_waiting(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.lock().is_sending, true) {
            self.send_all(false);
        }
    }

    fn send_all(self: &Arc<Self>, may_wait: bool) {
        while let Some(mut parcel) = self.next_parcel() {
            if parcel.send(self, may_wait) == Progress::Stuck {
                return self.send_patiently(parcel);
            }
        }
    }

    /// Hands over to a thread that may wait.
    fn send_patiently(self: &Arc<Self>, mut parcel: Parcel) {
        let connection = parcel.begun.as_ref().map(|(connection, _)| Arc::clone(connection));
        let (host, id) = (Arc::clone(self), parcel.id());
        let wait = move || {
            parcel.send(&host, true);
            host.send_all(true);
        };
        if let Err(error) = std::thread::Builder::new().spawn(wait) {
            // Half of a message was sent, and no more can be.
            connection.iter().for_each(|connection| connection.close());
            id.iter().for_each(|id| self.fail(*id, &self.unreachable(&error)));
            self.send_all(false);
        }
    }
}

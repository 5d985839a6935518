//! The client of the bridge: the lines that it gets on standard output, and the tools that it sees.

use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pontoon_wire::Message;
use rustix::io::Errno;

use crate::conversation::{Conversation, Offer, Step};
use crate::schema_file::SchemaFile;

/// The client.
#[derive(Debug)]
pub(super) struct Client {
    state: Mutex<State>,
    /// Held while a line is written.
    writing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    conversation: Conversation,
    tools: String,
}

impl Client {
    pub(super) fn new(schema: &SchemaFile) -> Self {
        let state = State { conversation: Conversation::default(), tools: schema.tools.clone() };
        Self { state: Mutex::new(state), writing: Mutex::new(()) }
    }

    /// What to do with a message of the client's.
    pub(super) fn take(&self, message: Message) -> Step {
        let State { conversation, tools } = &mut *self.lock();
        conversation.take(message, &Offer { name: "pontoon", tools: &|| tools.clone() })
    }

    /// Offers these tools from now on, and tells the client if they are others.
    pub(super) fn offer(&self, schema: SchemaFile) {
        let news = {
            let mut state = self.lock();
            if state.tools == schema.tools {
                return;
            }
            state.tools = schema.tools;
            state.conversation.changed()
        };
        news.iter().for_each(|note| self.send(note.as_bytes()));
    }

    /// Sends one line. If the client does not read any more, this process has nothing left to do.
    pub(super) fn send(&self, line: &[u8]) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pieces = [IoSlice::new(line), IoSlice::new(b"\n")];
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            match rustix::io::writev(rustix::stdio::stdout(), left) {
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_until_writable(),
                Err(_) => std::process::exit(0),
            }
        }
    }

    /// Whether the client has closed its end, so that nothing that is sent will be read.
    pub(super) fn is_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let stdout = rustix::stdio::stdout();
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok()
            && fds[0].revents().intersects(gone)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client may have made its pipe non-blocking for both ends.
fn wait_until_writable() {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdout = rustix::stdio::stdout();
    let _ = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
}

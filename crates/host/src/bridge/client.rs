//! The client of the bridge: the lines that it sends on standard input and gets on standard output, and the
//! tools that it sees.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_wire::Message;
use pontoon_wire::framing::lines::Lines;
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

use super::complain;
use super::connection::{read_some, retried};
use crate::conversation::{Conversation, Offer, Step};
use crate::schema_file::SchemaFile;

/// The longest line that is read. What may be passed on is shorter.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// A client that reads nothing is heard until so many bytes wait for it.
const MAX_UNREAD_BYTES: usize = 16 * 1024 * 1024;

/// How long calls may still run when the input has ended. A client that closed it waits about two seconds
/// before it sends a signal.
const GRACE: Duration = Duration::from_secs(1);

/// How many lines are written at once.
const LINES_AT_ONCE: usize = 64;

/// The client.
#[derive(Debug)]
pub(super) struct Client {
    conversation: Conversation,
    tools: String,
    lines: Lines,
    /// When its input ended.
    left_at: Option<Instant>,
    /// Lines that it has yet to get.
    unread: VecDeque<Vec<u8>>,
    unread_bytes: usize,
    /// How much of the first of them, with its end, is written.
    written: usize,
    _output: Output,
}

impl Client {
    pub(super) fn new(schema: &SchemaFile) -> Self {
        Self {
            conversation: Conversation::default(),
            tools: schema.tools.clone(),
            lines: Lines::new(MAX_LINE_BYTES),
            left_at: None,
            unread: VecDeque::new(),
            unread_bytes: 0,
            written: 0,
            _output: Output::without_waits(),
        }
    }

    /// What to do with a message of the client's.
    pub(super) fn take(&mut self, message: Message) -> Step {
        let Self { conversation, tools, .. } = self;
        conversation.take(message, &Offer { name: "pontoon", tools: &|| tools.clone() })
    }

    /// Offers these tools from now on, and tells the client if they are others.
    pub(super) fn offer(&mut self, schema: SchemaFile) {
        if self.tools == schema.tools {
            return;
        }
        self.tools = schema.tools;
        self.conversation.changed().into_iter().for_each(|note| self.send(note));
    }

    /// Reads what the client has sent.
    pub(super) fn read(&mut self) -> io::Result<()> {
        if read_some(stdin(), self.lines.buffer())? == Some(0) {
            self.left_at = Some(Instant::now());
        }
        Ok(())
    }

    /// The next line that was read, unless too much waits for the client already.
    pub(super) fn next_line(&mut self) -> Option<BytesMut> {
        if self.is_full() {
            // If the client is gone, the next write says so too.
            let _ = self.flush();
        }
        while !self.is_full() {
            match self.lines.next_line() {
                Some(Ok(line)) => return Some(line),
                Some(Err(too_long)) => {
                    complain(&format!("a message of the client's was dropped: {too_long}"));
                }
                // The last one may lack its end.
                None => return self.left_at.and_then(|_| self.lines.finish()),
            }
        }
        None
    }

    fn is_full(&self) -> bool {
        self.unread_bytes > MAX_UNREAD_BYTES
    }

    /// Sends a line, as soon as the client reads it.
    pub(super) fn send(&mut self, line: impl Into<Vec<u8>>) {
        let line = line.into();
        self.unread_bytes += line.len();
        self.unread.push_back(line);
    }

    /// Writes what the client takes now.
    ///
    /// # Errors
    ///
    /// It does not read any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.unread.is_empty() {
            let mut pieces: Vec<_> = (self.unread.iter().take(LINES_AT_ONCE))
                .flat_map(|line| [IoSlice::new(line), IoSlice::new(b"\n")])
                .collect();
            let mut left = &mut pieces[..];
            IoSlice::advance_slices(&mut left, self.written);
            match retried(|| rustix::io::writev(stdout(), left)) {
                Ok(written) => self.written += written,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            while let Some(line) = self.unread.front()
                && self.written > line.len()
            {
                self.written -= line.len() + 1;
                self.unread_bytes -= line.len();
                self.unread.pop_front();
            }
        }
        Ok(())
    }

    /// Whether it has yet to read what was sent.
    pub(super) fn is_behind(&self) -> bool {
        !self.unread.is_empty()
    }

    /// When it is not worth to go on, if its input has ended: what it has begun to read is worth more time.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        let grace = if self.is_behind() { 11 * GRACE } else { GRACE };
        self.left_at.map(|left_at| left_at + grace)
    }

    /// What to wait for on standard input.
    pub(super) fn input_events(&self) -> Option<PollFlags> {
        (self.left_at.is_none() && !self.is_full()).then_some(PollFlags::IN)
    }

    /// What to wait for on standard output; once its input has ended, at least for the client to be gone.
    pub(super) fn output_events(&self) -> Option<PollFlags> {
        let at_the_end = self.left_at.map(|_| PollFlags::empty());
        self.is_behind().then_some(PollFlags::OUT).or(at_the_end)
    }
}

/// Standard output, where no write waits. Files and terminals take what they get; a pipe or a socket may have
/// other owners, so it is left as it was.
#[derive(Debug)]
struct Output {
    before: Option<OFlags>,
}

impl Output {
    fn without_waits() -> Self {
        let kind = fstat(stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let before = match kind {
            Ok(FileType::Fifo | FileType::Socket) => fcntl_getfl(stdout()).ok(),
            _ => None,
        };
        let before = before.filter(|flags| !flags.contains(OFlags::NONBLOCK));
        before.iter().for_each(|flags| _ = fcntl_setfl(stdout(), *flags | OFlags::NONBLOCK));
        Self { before }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.before.iter().for_each(|flags| _ = fcntl_setfl(stdout(), *flags));
    }
}

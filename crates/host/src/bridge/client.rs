//! The client of the bridge: the lines that it sends on standard input and gets on standard output, and the
//! tools that it sees.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_wire::Message;
use pontoon_wire::framing::lines::Lines;
use rustix::event::PollFlags;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

use super::arguments::Showing;
use super::connection::{GONE, read_some, retried};
use super::console::complain;
use super::shown::{ShownTools, fault_line};
use crate::conversation::{Conversation, ServerOffer, Step};
use crate::schema_file::SchemaFile;

/// The longest line that is read. What may be passed on is shorter.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// The bridge hears a client that reads nothing until more bytes than this wait for it.
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
    showing: Showing,
    shown: ShownTools,
    /// The codes of the faults in tools that were told.
    told: BTreeSet<&'static str>,
    lines: Lines,
    /// Whether lines were read that wait until there is room for their answers.
    is_held: bool,
    /// When it closed its end of the input.
    left_at: Option<Instant>,
    /// Whether all that it sent is read.
    is_read: bool,
    /// Lines that it has yet to get.
    unread: VecDeque<Vec<u8>>,
    unread_bytes: usize,
    /// Whether it did not take all of them when they were last written.
    is_behind: bool,
    /// How much of the first of them, with its end, is written.
    written: usize,
    output: Output,
}

impl Client {
    pub(super) fn new(schema: &SchemaFile, showing: Showing) -> Self {
        let mut told = BTreeSet::new();
        Self {
            conversation: Conversation::default(),
            shown: shown(schema, &showing, &mut told),
            showing,
            told,
            lines: Lines::new(MAX_LINE_BYTES),
            is_held: false,
            left_at: None,
            is_read: false,
            unread: VecDeque::new(),
            unread_bytes: 0,
            is_behind: false,
            written: 0,
            output: Output::without_waits(),
        }
    }

    /// What to do with a message of the client's.
    pub(super) fn take(&mut self, message: Message) -> Step {
        let Self { conversation, shown, .. } = self;
        let message = shown.led_back(message);
        conversation.take(message, &ServerOffer { name: "pontoon", tools: &|| shown.list.clone() })
    }

    /// Offers these tools from now on, and tells the client if they are others.
    pub(super) fn offer(&mut self, schema: &SchemaFile) {
        let shown = shown(schema, &self.showing, &mut self.told);
        let is_same = self.shown.list == shown.list;
        self.shown = shown;
        if is_same {
            return;
        }
        self.conversation.changed().into_iter().for_each(|note| self.send(note));
    }

    /// Hears what the client says, after these events on standard input; if there is no room for answers, only that
    /// it has left.
    pub(super) fn hear(&mut self, events: PollFlags) -> io::Result<()> {
        let has_left = if self.is_full() {
            events.intersects(GONE)
        } else {
            self.is_read = read_some(stdin(), self.lines.buffer())? == Some(0);
            self.is_read
        };
        if has_left && self.left_at.is_none() {
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
        self.is_held = self.is_full();
        while !self.is_held {
            match self.lines.next_line() {
                Some(Ok(line)) => return Some(line),
                Some(Err(too_long)) => {
                    complain(&format!("a message of the client's was dropped: {too_long}"));
                }
                // The last one may lack its end.
                None if self.is_read => return self.lines.finish(),
                None => return None,
            }
        }
        None
    }

    /// Whether lines wait that there is room for.
    pub(super) fn has_lines(&self) -> bool {
        self.is_held && !self.is_full()
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
                Err(Errno::AGAIN) => {
                    self.is_behind = true;
                    return Ok(());
                }
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
        // One that has caught up hears what else there is.
        if std::mem::take(&mut self.is_behind) && self.left_at.is_some() {
            self.left_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Whether there is room for what the program says. As a rule one message waits at most; at the end all that
    /// was said in time is to be read.
    pub(super) fn has_room(&self) -> bool {
        !self.is_behind || self.left_at.is_some() && !self.is_full()
    }

    /// When it is not worth to go on, if its input has ended: what it has yet to read is worth more time.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        let grace = if self.is_behind { 11 * GRACE } else { GRACE };
        self.left_at.map(|left_at| left_at + grace)
    }

    /// Whether it has sent all, and got all that was said.
    pub(super) fn is_done(&self) -> bool {
        self.is_read && !self.is_held && self.unread.is_empty()
    }

    /// What to wait for on standard input; while there is no room, at least for its end, once.
    pub(super) fn input_events(&self) -> Option<PollFlags> {
        match (self.is_read, self.is_full()) {
            (true, _) => None,
            (false, false) => Some(PollFlags::IN),
            (false, true) => self.left_at.is_none().then_some(PollFlags::empty()),
        }
    }

    /// What to wait for on standard output; once its input has ended, at least for the client to be gone.
    pub(super) fn output_events(&self) -> Option<PollFlags> {
        let at_the_end = self.left_at.filter(|_| self.output.can_wait).map(|_| PollFlags::empty());
        self.is_behind.then_some(PollFlags::OUT).or(at_the_end)
    }
}

/// The tools as the client sees them. The bridge says what is wrong with them, once for each kind.
fn shown(schema: &SchemaFile, showing: &Showing, told: &mut BTreeSet<&'static str>) -> ShownTools {
    ShownTools::of(schema, showing, |tool, finding, mode| {
        let line = fault_line(tool, finding, mode);
        if let Some(line) = line.filter(|_| told.insert(finding.fault.code())) {
            complain(&line);
        }
    })
}

/// Standard output, where no write waits if it is a pipe or a socket. It may have other owners, so it is put back as
/// it was, unless a signal ends this process. A terminal is left alone: it is the shell's, and one that is stopped
/// stops this process.
#[derive(Debug)]
struct Output {
    /// Whether it may be that it takes nothing for a while.
    can_wait: bool,
    before: Option<OFlags>,
}

impl Output {
    fn without_waits() -> Self {
        let kind = fstat(stdout()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let can_wait = matches!(kind, Ok(FileType::Fifo | FileType::Socket));
        let before = fcntl_getfl(stdout()).ok();
        let before = before.filter(|flags| can_wait && !flags.contains(OFlags::NONBLOCK));
        if let Some(flags) = before {
            let _ = fcntl_setfl(stdout(), flags | OFlags::NONBLOCK);
        }
        Self { can_wait, before }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(flags) = self.before {
            let _ = fcntl_setfl(stdout(), flags);
        }
    }
}

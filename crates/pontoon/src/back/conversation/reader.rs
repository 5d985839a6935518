//! The task of a link: it reads what the server says, finishes writes, and watches deadlines.
//!
//! Reading and writing share one loop, so a server that fills its output before it reads its input
//! blocks no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_supervise::prefer_large_pages;
use pontoon_wire::Message;
use pontoon_wire::ScanError;
use pontoon_wire::framing::lengths::content_length;
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::heal::lines::{Found, LineDoctor};
use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::peer::PeerEvent;

use super::carrier::{FrameInput, FrameOutput, FrameRead};
use super::mailbox::ServerEvent;
use super::state::{Handovers, LinkState, SharedLink};
use crate::clock::now;
use crate::held_bytes::{Full, Hold, SMALL};

/// From this length on a line is worth a wider pipe.
const LONG_LINE: usize = 256 * 1024;

/// A line of this length gets this much room at once, in large pages, if there is that much.
const HUGE_LINE: usize = 2 * 1024 * 1024;
const HUGE_ROOM: usize = 10 * 1024 * 1024;
const LARGE_PAGE: usize = 2 * 1024 * 1024;

/// How long a server waits for room for the rest of a long line, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a socket is read that we write to no more: no process ends there that could be waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The task of a link.
pub(crate) struct LinkReader {
    shared: Arc<SharedLink>,
    output: FrameOutput,
    lines: Lines,
    doctor: LineDoctor,
    /// How the server tells its messages apart.
    manner: FrameManner,
    /// Whether a message was heard while the input was open, and how many were after that.
    is_heard: bool,
    heard_late: usize,
    has_wide_pipe: bool,
    /// Whether the line that is being read lies on large pages.
    has_large_pages: bool,
    /// Counts the line that is being read, if it is long.
    hold: Hold,
    /// Since when there is no room for more of it.
    full_since: Option<Instant>,
    /// Until when a socket is read that we write to no more.
    ends_at: Option<tokio::time::Instant>,
    /// What is to be handed over when the link is not locked any more.
    deliveries: Handovers,
}

/// How a server tells its messages apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameManner {
    /// It has said nothing yet.
    Unknown,
    /// One a line.
    Lines,
    /// In `Content-Length` frames.
    Frames,
}

impl LinkReader {
    /// Reads messages up to this length; long ones are counted by `hold`.
    pub(crate) fn new(
        shared: Arc<SharedLink>,
        output: FrameOutput,
        max_message: usize,
        hold: Hold,
    ) -> Self {
        let mut lines = Lines::new(max_message);
        let mut state = shared.lock();
        lines.take_frames(state.writes_frames || state.peer.heals().repairs(Heal::H05));
        drop(state);
        Self {
            shared,
            output,
            lines,
            doctor: LineDoctor::new(max_message),
            manner: FrameManner::Unknown,
            is_heard: false,
            heard_late: 0,
            has_wide_pipe: false,
            has_large_pages: false,
            hold,
            full_since: None,
            ends_at: None,
            deliveries: Handovers::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut timer = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut is_armed = false;
        loop {
            let (blocked, deadline) = self.next_wait();
            if let Some(deadline) = deadline {
                timer.as_mut().reset(deadline.into());
                is_armed = true;
            }
            let (has_room, ends_at) = (self.has_room(), self.ends_at);
            tokio::select! {
                heard = self.output.next(&mut self.lines), if has_room => match heard {
                    FrameRead::Bytes => self.handle_lines(),
                    FrameRead::Frame(frame) => self.handle_frame(frame),
                    FrameRead::Nothing => {}
                    FrameRead::End => {
                        let mut state = self.shared.lock();
                        state.is_ended_there = !state.is_closed_here;
                        break;
                    }
                },
                () = writable(blocked.as_deref()), if blocked.is_some() => self.shared.lock().write(),
                // A timer that has fired stays ready, so it is not asked again until it is reset.
                () = timer.as_mut(), if is_armed => {
                    is_armed = false;
                    self.handle_timeout();
                }
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(LOOK_AGAIN), if !has_room => {}
                () = until(ends_at), if ends_at.is_some() => break,
            }
        }
    }

    /// What to wait for besides input: the pipe, if it was full, and a new earliest deadline.
    fn next_wait(&mut self) -> (Option<Arc<FrameInput>>, Option<Instant>) {
        let mut state = self.shared.lock();
        state.write();
        if let FrameOutput::WebSocket(socket) = &mut self.output {
            while socket.has_room()
                && let Some(message) = state.next_message()
            {
                socket.send(message);
            }
            if !state.messages.is_empty() {
                socket.tell_room();
            }
            socket.set_busy(state.is_at_work());
            if state.input.is_none() {
                socket.close();
            }
        } else if let FrameOutput::Channel(channel) = &mut self.output {
            while channel.has_room()
                && let Some(message) = state.next_message()
            {
                channel.send(message);
            }
            if !state.messages.is_empty() {
                channel.tell_room();
            }
            if state.input.is_none() {
                channel.close();
            }
        } else if state.input.is_none() && self.ends_at.is_none() && self.output.is_socket() {
            self.ends_at = Some(tokio::time::Instant::now() + LAST_WORDS);
        }
        let blocked = state.input.clone().filter(|_| !state.outgoing.is_empty());
        let earliest = state.peer.poll_timeout();
        let is_new = earliest.is_some() && (state.armed.is_none() || state.armed > earliest);
        if is_new {
            state.armed = earliest;
        }
        (blocked, earliest.filter(|_| is_new))
    }

    /// Room to read into: little while little comes, more while a long line grows. False while the bridge
    /// holds as much as it may: then the server has to wait, and after a while the line is lost.
    fn has_room(&mut self) -> bool {
        let buffer = self.lines.buffer();
        if buffer.capacity() - buffer.len() >= 1024 {
            return true;
        }
        let is_huge = (HUGE_LINE..HUGE_ROOM / 2).contains(&buffer.capacity());
        if is_huge && self.hold.grow_to(HUGE_ROOM).is_ok() {
            buffer.reserve(HUGE_ROOM - buffer.len());
            // All of it, for it can only grow as a whole where it is all of one kind.
            prefer_large_pages(buffer);
            prefer_large_pages(buffer.spare_capacity_mut());
            (self.has_large_pages, self.full_since) = (true, None);
            return true;
        }
        let more = buffer.len().clamp(8 * 1024, 4 * 1024 * 1024);
        if let Err(full) = self.hold.grow_to(buffer.len() + more) {
            return self.wait_for_room(full);
        }
        self.full_since = None;
        buffer.reserve(more);
        if more >= LONG_LINE && !self.has_wide_pipe {
            self.has_wide_pipe = true;
            self.output.widen();
        }
        true
    }

    fn wait_for_room(&mut self, full: Full) -> bool {
        let since = *self.full_since.get_or_insert_with(now);
        if now().duration_since(since) < PATIENCE {
            return false;
        }
        self.full_since = None;
        tracing::warn!(server = %self.shared.heals.server(), why = %full, "message dropped");
        self.lines.drop_line();
        (self.has_large_pages, self.hold) = (false, self.hold.none());
        let beginning = self.lines.dropped();
        self.shared.lock().lose(beginning, &full.to_string(), &mut self.deliveries);
        self.deliver();
        true
    }

    fn handle_lines(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        while let Some(line) = self.lines.next_line() {
            if self.lines.take_return() {
                state.peer.heals().note(Heal::H04);
            }
            if self.manner == FrameManner::Unknown {
                self.look_for_frames(&mut state, line.as_deref().unwrap_or_default());
            }
            match line {
                // What is short must not keep the memory of the long line before it.
                Ok(line) if line.len() <= SMALL && self.is_in_long_memory() => {
                    self.doctor.take(BytesMut::from(&line[..]), state.peer.heals());
                }
                Ok(line) => self.doctor.take(line, state.peer.heals()),
                Err(too_long) => {
                    tracing::warn!(server = %self.shared.heals.server(), %too_long, "message dropped");
                    let why = format!("{too_long} (MCPO_MAX_MESSAGE)");
                    state.peer.heals().note(Heal::H26);
                    state.lose(self.lines.dropped(), &why, &mut self.deliveries);
                }
            }
            self.handle_found(&mut state);
        }
        state.write();
        self.shared.count_heals(&mut state);
        drop(state);
        self.deliver();
        self.shrink();
    }

    /// A frame is a message by itself: white space in it ends nothing.
    fn handle_frame(&mut self, frame: BytesMut) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        match is_nothing(&frame) {
            true => state.peer.heals().note(Heal::H08),
            false => self.doctor.take(frame, state.peer.heals()),
        }
        self.handle_found(&mut state);
        state.write();
        self.shared.count_heals(&mut state);
        drop(state);
        self.deliver();
    }

    /// Sees whether a server writes frames, which it is written to in from then on. One that began with a line goes on so.
    fn look_for_frames(&mut self, state: &mut LinkState, line: &[u8]) {
        if self.lines.has_framed() {
            self.manner = FrameManner::Frames;
            state.peer.heals().note(Heal::H05);
            state.writes_frames = true;
        } else if content_length(line).is_some()
            && state.peer.heals().mode(Heal::H05) == HealMode::Warn
        {
            self.manner = FrameManner::Lines;
            state.peer.heals().note(Heal::H05);
        }
    }

    fn deliver(&mut self) {
        self.shared.deliver(&mut self.deliveries);
    }

    /// Whether what is read now lies in the memory of a long line. What counted it may be gone with that.
    fn is_in_long_memory(&self) -> bool {
        self.has_large_pages || !self.hold.is_empty()
    }

    /// Lets go of the memory of a long line that is over: the next one may be small, or never come.
    fn shrink(&mut self) {
        let is_long = self.is_in_long_memory();
        let buffer = self.lines.buffer();
        if is_long && buffer.len() <= SMALL {
            *buffer = BytesMut::from(&buffer[..]);
            (self.has_large_pages, self.hold) = (false, self.hold.none());
        }
    }

    fn handle_found(&mut self, state: &mut LinkState) {
        while let Some(found) = self.doctor.next_found() {
            match found {
                Found::Message(message) => self.handle_message(state, message),
                Found::Noise(noise) => {
                    self.log_noise(&noise);
                    note_noise(state, &noise);
                    let why = "it is not valid JSON-RPC";
                    state.lose_answer_in(&noise, why, &mut self.deliveries);
                }
                Found::Refused(text, why) => {
                    self.log_noise(&text);
                    state.lose_answer_in(&text, &why_refused(why), &mut self.deliveries);
                }
            }
        }
    }

    fn handle_message(&mut self, state: &mut LinkState, message: Message) {
        match state.is_closed_here {
            true => self.heard_late += 1,
            false => self.is_heard = true,
        }
        if self.manner == FrameManner::Unknown {
            self.manner = FrameManner::Lines;
            self.lines.take_frames(false);
        }
        let size = message.text().len();
        if size <= SMALL {
            return self.shared.handle(state, message, &mut self.deliveries);
        }
        // Of its last page most may be empty.
        let size = if self.has_large_pages { size + LARGE_PAGE } else { size };
        // From now on the message itself says how long its memory is needed.
        let mut hold = self.hold.split(size);
        // One that was joined from short lines was not counted yet, and is there already.
        let _ = hold.grow_to(size);
        self.shared.handle(state, hold.ride_with(message), &mut self.deliveries);
    }

    fn log_noise(&self, noise: &BytesMut) {
        let line = String::from_utf8_lossy(&noise[..noise.len().min(500)]);
        tracing::debug!(server = %self.shared.heals.server(), ?line, "text on stdout that is no message");
    }

    fn handle_timeout(&mut self) {
        let mut state = self.shared.lock();
        state.armed = None;
        for event in state.peer.handle_timeout(now()) {
            if let PeerEvent::TimedOut(awaited, note) = event {
                self.deliveries.event(awaited.mailbox, ServerEvent::TimedOut(note));
                state.haunt();
            }
        }
        state.write();
        drop(state);
        self.deliver();
    }
}

impl Drop for LinkReader {
    /// The output ended: the last line may lack its newline, and no request may wait any longer.
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.doctor.finish(self.lines.finish(), state.peer.heals());
        while let Some(found) = self.doctor.next_found() {
            match found {
                Found::Message(message) => self.handle_message(&mut state, message),
                // Half a message says less than how the server ended, which its calls are told.
                Found::Noise(noise) | Found::Refused(noise, _) => {
                    self.log_noise(&noise);
                    note_noise(&mut state, &noise);
                }
            }
        }
        if !self.is_heard && self.heard_late > 0 {
            state.peer.heals().note(Heal::H07);
            let (server, messages) = (self.shared.heals.server(), self.heard_late);
            tracing::debug!(%server, messages, "messages came only when the server ended");
        }
        self.shared.count_heals(&mut state);
        drop(state);
        // What was said comes before the end.
        self.deliver();
        let mut state = shared.lock();
        match &self.output {
            FrameOutput::WebSocket(socket) => state.end = socket.end().cloned(),
            FrameOutput::Channel(channel) => state.end = channel.end().cloned(),
            FrameOutput::Pipe(_) | FrameOutput::Tcp(_) | FrameOutput::Unix(_) => {}
        }
        state.is_gone = true;
        state.input = None;
        state.abandon(&mut self.deliveries);
        state.listeners.clear();
        state.asker = None;
        drop(state);
        self.deliver();
        self.shared.gone.cancel();
    }
}

/// Keeps how the first thing begins that was no message.
fn note_noise(state: &mut LinkState, noise: &[u8]) {
    if state.noise.is_none() {
        let line = noise.split(|byte| *byte == b'\n').next().unwrap_or_default();
        state.noise = Some(String::from_utf8_lossy(&line[..line.len().min(80)]).trim().to_owned());
    }
}

/// Why a message is not used, as the reason of a sentence.
fn why_refused(why: ScanError) -> String {
    let code = Heal::H26.code();
    match why {
        ScanError::TooDeep { .. } => format!("it is {why} ({code})"),
        why => format!("{why} ({code})"),
    }
}

/// Whether a frame says nothing: some applications answer notifications so.
fn is_nothing(frame: &[u8]) -> bool {
    let text = frame.trim_ascii();
    text.is_empty() || text == b"\"\""
}

/// Waits until there is room to write.
async fn writable(input: Option<&FrameInput>) {
    match input {
        Some(input) => input.writable().await,
        None => std::future::pending().await,
    }
}

/// Waits until then; for ever if there is no such time.
async fn until(then: Option<tokio::time::Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::heal::HealModes;
    use tokio::net::unix::pipe::pipe;

    use super::*;
    use crate::held_bytes::HeldBytes;
    use crate::observe::heals::HealLog;

    #[tokio::test]
    async fn the_memory_of_a_long_line_goes_with_it() {
        let ((input, _told), (_server, output)) = (pipe().unwrap(), pipe().unwrap());
        let heals = Arc::new(HealLog::new("demo"));
        let shared =
            Arc::new(SharedLink::new(FrameInput::Pipe(input), HealModes::default(), true, heals));
        let held = HeldBytes::new(1 << 30);
        let hold = held.hold(None);
        let mut reader = {
            let output = FrameOutput::Pipe(output);
            LinkReader::new(shared, output, 64 << 20, hold)
        };
        for bytes in [1 << 10, 100 << 10, 3 << 20, 9 << 20, 13 << 20] {
            let text = "x".repeat(bytes);
            let line = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{{\"x\":\"{text}\"}}}}\n"
            );
            let mut rest = line.as_bytes();
            while !rest.is_empty() {
                assert!(reader.has_room());
                let buffer = reader.lines.buffer();
                let (read, more) = rest.split_at(rest.len().min(buffer.capacity() - buffer.len()));
                buffer.extend_from_slice(read);
                rest = more;
            }
            let is_small = bytes <= SMALL;
            assert_eq!(held.used().0 == 0, is_small, "{bytes}");
            reader.handle_lines();
            assert_eq!(held.used().0, 0, "{bytes}");
            assert!(reader.lines.buffer().capacity() <= 2 * SMALL, "{bytes}");
        }
    }
}

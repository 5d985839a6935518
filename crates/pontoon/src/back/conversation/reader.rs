//! The task of a link: it reads what the server says, finishes writes, and watches deadlines.
//!
//! Reading and writing share one loop, so a server that fills its output before it reads its input
//! blocks nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_supervise::{ChildInput, ChildOutput};
use pontoon_wire::Message;
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::heal::Heal;
use pontoon_wire::heal::lines::{Found, LineDoctor};
use pontoon_wire::peer::Event;
use tokio::io::AsyncReadExt;

use super::link::{GHOST, Inner, LinkOptions, Shared};
use super::mailbox::Heard;
use crate::held_bytes::{Full, Hold, SMALL};

/// From this length on a line is worth a wider pipe.
const LONG_LINE: usize = 256 * 1024;

/// How long a server waits for room for the rest of a long line, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The task of a link.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    output: ChildOutput,
    lines: Lines,
    doctor: LineDoctor,
    has_wide_pipe: bool,
    /// Counts the line that is being read, if it is long.
    hold: Hold,
    /// Since when there is no room for more of it.
    full_since: Option<Instant>,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, output: ChildOutput, options: &LinkOptions) -> Self {
        let lines = Lines::new(options.max_message);
        let doctor = LineDoctor::new(options.heal, options.max_message);
        let hold = options.held.hold(None);
        Self { shared, output, lines, doctor, has_wide_pipe: false, hold, full_since: None }
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
            let has_room = self.has_room();
            tokio::select! {
                read = self.output.read_buf(self.lines.buffer()), if has_room => match read {
                    Ok(0) | Err(_) => break,
                    Ok(_) => self.handle_lines(),
                },
                () = writable(blocked.as_deref()), if blocked.is_some() => self.shared.lock().write(),
                // A timer that has fired stays ready, so it is not asked again until it is reset.
                () = timer.as_mut(), if is_armed => {
                    is_armed = false;
                    self.handle_timeout();
                }
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(LOOK_AGAIN), if !has_room => {}
            }
        }
    }

    /// What to wait for besides input: the pipe, if it was full, and a new earliest deadline.
    fn next_wait(&self) -> (Option<Arc<ChildInput>>, Option<Instant>) {
        let mut inner = self.shared.lock();
        inner.write();
        let blocked = inner.input.clone().filter(|_| !inner.outgoing.is_empty());
        let earliest = inner.peer.poll_timeout();
        let is_new = earliest.is_some() && (inner.armed.is_none() || inner.armed > earliest);
        if is_new {
            inner.armed = earliest;
        }
        (blocked, earliest.filter(|_| is_new))
    }

    /// Room to read into: little while little comes, more while a long line grows. False while the bridge
    /// holds as much as it may: then the server has to wait, and after a while the line is lost.
    fn has_room(&mut self) -> bool {
        let buffer = self.lines.buffer();
        if buffer.capacity() - buffer.len() < 1024 {
            let more = buffer.len().clamp(8 * 1024, 4 * 1024 * 1024);
            if let Err(full) = self.hold.grow_to(buffer.len() + more) {
                return self.wait_for_room(full);
            }
            self.full_since = None;
            buffer.reserve(more);
            if more >= LONG_LINE && !self.has_wide_pipe {
                self.has_wide_pipe = true;
                widen(&self.output);
            }
        }
        true
    }

    fn wait_for_room(&mut self, full: Full) -> bool {
        let since = *self.full_since.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return false;
        }
        self.full_since = None;
        tracing::warn!(server = %self.shared.heals.server(), why = %full, "message dropped");
        self.lines.drop_line();
        self.hold = self.hold.none();
        self.shared.lock().lose(&full.to_string());
        true
    }

    fn handle_lines(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.lock();
        while let Some(line) = self.lines.next_line() {
            if self.lines.take_return() {
                inner.peer.heals().note(Heal::H04);
            }
            match line {
                // What is short must not keep the memory of the long line before it.
                Ok(line) if line.len() <= SMALL && !self.hold.is_empty() => {
                    self.doctor.take(BytesMut::from(&line[..]), inner.peer.heals());
                }
                Ok(line) => self.doctor.take(line, inner.peer.heals()),
                Err(too_long) => {
                    tracing::warn!(server = %self.shared.heals.server(), %too_long, "message dropped");
                    inner.lose(&format!("{too_long} (MCPO_MAX_MESSAGE)"));
                }
            }
            self.handle_found(&mut inner);
        }
        inner.write();
        self.shared.heals.add(inner.peer.heals());
        self.shrink();
    }

    /// Lets go of the memory of a long line that is over: the next one may be small, or never come.
    fn shrink(&mut self) {
        let buffer = self.lines.buffer();
        if !self.hold.is_empty() && buffer.len() <= SMALL {
            *buffer = BytesMut::from(&buffer[..]);
            self.hold = self.hold.none();
        }
    }

    fn handle_found(&mut self, inner: &mut Inner) {
        while let Some(found) = self.doctor.next_found() {
            match found {
                Found::Message(message) => self.handle_message(inner, message),
                Found::Noise(noise) => {
                    self.log_noise(&noise);
                    inner.lose_answer_in(&noise);
                }
            }
        }
    }

    fn handle_message(&mut self, inner: &mut Inner, message: Message) {
        let size = message.text().len();
        if size <= SMALL {
            return self.shared.handle(inner, message);
        }
        // From now on the message itself says how long its memory is needed.
        let mut hold = self.hold.split(size);
        // One that was joined from short lines was not counted yet, and is there already.
        let _ = hold.grow_to(size);
        self.shared.handle(inner, hold.ride_with(message));
    }

    fn log_noise(&self, noise: &BytesMut) {
        let line = String::from_utf8_lossy(&noise[..noise.len().min(500)]);
        tracing::debug!(server = %self.shared.heals.server(), ?line, "text on stdout that is no message");
    }

    fn handle_timeout(&mut self) {
        let mut inner = self.shared.lock();
        inner.armed = None;
        for event in inner.peer.handle_timeout(Instant::now()) {
            if let Event::TimedOut(waiting, note) = event {
                waiting.mailbox.push(Heard::TimedOut(note));
                inner.ghost_until = Some(Instant::now() + GHOST);
            }
        }
        inner.write();
    }
}

impl Drop for Reader {
    /// The output ended: the last line may lack its newline, and nobody may wait any longer.
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.lock();
        self.doctor.finish(self.lines.finish(), inner.peer.heals());
        while let Some(found) = self.doctor.next_found() {
            match found {
                Found::Message(message) => self.handle_message(&mut inner, message),
                // Half a message says less than how the server ended, which its calls are told.
                Found::Noise(noise) => self.log_noise(&noise),
            }
        }
        self.shared.heals.add(inner.peer.heals());
        inner.is_gone = true;
        inner.input = None;
        inner.abandon();
        inner.listeners.clear();
        inner.asker = None;
        drop(inner);
        self.shared.gone.cancel();
    }
}

/// Waits until the pipe has room, or is broken.
async fn writable(input: Option<&ChildInput>) {
    match input {
        // An error here shows again at the next write, which then gives up.
        Some(input) => drop(input.writable().await),
        None => std::future::pending().await,
    }
}

/// Lets a server write a long line in fewer turns. Where that is not allowed, nothing changes.
#[cfg(target_os = "linux")]
fn widen(output: &ChildOutput) {
    const WIDE: usize = 1024 * 1024;
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(output, WIDE) {
        tracing::trace!(%error, "the pipe keeps its size");
    }
}

/// Elsewhere pipes have the size they have.
#[cfg(not(target_os = "linux"))]
fn widen(_output: &ChildOutput) {}

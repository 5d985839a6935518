//! The program that has the tools: one connection to it, kept, and the calls that it has yet to answer.
//!
//! Answers find their calls by id. A program that gives no ids back gets one call at a time, and a call that
//! is given up there takes its connection with it: the late answer must not be the next call's.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use pontoon_wire::framing::frames::FrameTooLong;
use pontoon_wire::{Message, Slot};
use rustix::event::PollFlags;

use super::client::Client;
use super::connection::Connection;
use super::{complain, translate};
use crate::conversation::{Asker, ToolRequest, id_in};
use crate::protocol::IpcError;
use crate::schema_file::SchemaFile;

/// How many calls may be under way or wait.
const MAX_OPEN: usize = 1024;

/// How many bytes of calls may wait until the program takes them.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// How many messages are written at once.
const PARCELS_AT_ONCE: usize = 64;

/// A program that takes none of a message for so long is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program.
#[derive(Debug)]
pub(super) struct Host {
    socket: PathBuf,
    schema: PathBuf,
    schema_version: Option<Version>,
    /// Whether several calls may be under way.
    answers_by_id: bool,
    connection: Option<Connection>,
    calls: u64,
    open: HashMap<u64, Open>,
    /// What has yet to be sent.
    parcels: VecDeque<Parcel>,
    /// How much of the first parcel is written.
    written: usize,
}

/// A call that is not answered yet.
#[derive(Debug)]
struct Open {
    asker: Asker,
    /// Whether the program has all of it.
    is_sent: bool,
}

/// A message for the program.
#[derive(Debug)]
struct Parcel {
    /// The call that it is; none if it is word that a call was given up.
    call: Option<u64>,
    frame: Vec<u8>,
    /// How often the connection may be lost before all of it is sent: what the program did not get whole it does
    /// not carry out, so that is sent again, once. The program may just have closed an idle connection.
    tries: u32,
}

impl Host {
    pub(super) fn new(socket: &Path, schema: &Path, answers_by_id: bool) -> Self {
        Self {
            socket: socket.to_owned(),
            schema: schema.to_owned(),
            schema_version: version(schema),
            answers_by_id,
            connection: None,
            calls: 0,
            open: HashMap::new(),
            parcels: VecDeque::new(),
            written: 0,
        }
    }

    /// Takes a call of the client's, to be sent.
    pub(super) fn call(&mut self, request: &ToolRequest, client: &mut Client) {
        self.calls += 1;
        let (id, asker) = (self.calls, request.asker.clone());
        let taken = translate::call(id, request, self.answers_by_id)
            .and_then(|frame| self.has_room(frame.len()).map(|()| frame));
        match taken {
            Ok(frame) => {
                self.open.insert(id, Open { asker, is_sent: false });
                self.parcels.push_back(Parcel { call: Some(id), frame, tries: 2 });
            }
            Err(error) => tell(client, &asker, &error),
        }
    }

    /// Whether another call of so many bytes may wait.
    fn has_room(&self, bytes: usize) -> Result<(), IpcError> {
        let busy = |count: usize, what: &str| {
            let busy = format!("{count} {what}; call again when some are answered");
            Err(IpcError::Connection(busy))
        };
        if self.open.len() >= MAX_OPEN {
            return busy(MAX_OPEN, "calls are under way already");
        }
        let waiting = self.parcels.iter().skip(self.begun());
        let waiting: usize = waiting.map(|parcel| parcel.frame.len()).sum();
        if waiting + bytes > MAX_WAITING_BYTES {
            return busy(waiting, "bytes of calls wait until the program takes them");
        }
        Ok(())
    }

    /// Gives a call of the client's up. It is not answered any more.
    pub(super) fn cancel(&mut self, client_id: &[u8], client: &mut Client) {
        let found = self.open.iter().find(|(_, open)| open.asker.id == client_id);
        let Some(id) = found.map(|(id, _)| *id) else { return };
        let is_sent = self.open.remove(&id).is_some_and(|open| open.is_sent);
        let begun = self.begun();
        let is_begun = self.parcels.iter().take(begun).any(|parcel| parcel.call == Some(id));
        if !is_sent && !is_begun {
            return self.parcels.retain(|parcel| parcel.call != Some(id));
        }
        if !self.answers_by_id {
            return self.lose(client, None);
        }
        self.connection.iter_mut().for_each(|connection| connection.has_given_up = true);
        let frame = translate::cancel(id);
        self.parcels.insert(begun, Parcel { call: None, frame, tries: 0 });
    }

    /// How many parcels are half written: one or none.
    fn begun(&self) -> usize {
        usize::from(self.written > 0)
    }

    /// Whether the program has yet to answer something.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// What to wait for, if there is anything. While the client reads nothing, the program is not heard: it could
    /// say more than there is room for.
    pub(super) fn events(&self, client: &Client) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !client.is_behind());
        events.set(PollFlags::OUT, self.stuck_since().is_some());
        let connection = self.connection.as_ref().filter(|_| !events.is_empty())?;
        Some((connection.as_fd(), events))
    }

    /// Since when the program takes nothing, though there is something to send.
    fn stuck_since(&self) -> Option<Instant> {
        self.connection.as_ref().filter(|_| !self.parcels.is_empty())?.stuck_since
    }

    /// Sends what waits, as far as the program takes it now.
    pub(super) fn send(&mut self, client: &mut Client) {
        while let Some(first) = self.parcels.front() {
            let has_turn = self.answers_by_id || self.written > 0 || !self.has_calls();
            if !has_turn {
                return;
            }
            let call = first.call;
            if let Err(error) = self.connect(client) {
                // Without a connection, there are only calls to send.
                self.parcels.pop_front();
                call.iter().for_each(|call| self.fail(*call, &error, client));
                continue;
            }
            match self.write() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    self.tried();
                    // What the program said before it was gone is not lost.
                    while let Some(1..) = self.read(client) {}
                    self.lose(client, Some(&error));
                }
            }
        }
    }

    /// Writes once; `false` if the program takes no more.
    fn write(&mut self) -> io::Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(true) };
        let count = if self.answers_by_id { PARCELS_AT_ONCE } else { 1 };
        let mut pieces: Vec<_> =
            self.parcels.iter().take(count).map(|parcel| IoSlice::new(&parcel.frame)).collect();
        let mut left = &mut pieces[..];
        IoSlice::advance_slices(&mut left, self.written);
        let written = connection.write(left)?;
        self.written += written;
        while let Some(first) = self.parcels.front()
            && self.written >= first.frame.len()
        {
            self.written -= first.frame.len();
            let sent = first.call.and_then(|call| self.open.get_mut(&call));
            sent.into_iter().for_each(|open| open.is_sent = true);
            self.parcels.pop_front();
        }
        Ok(written > 0)
    }

    fn connect(&mut self, client: &mut Client) -> Result<(), IpcError> {
        if self.connection.is_none() {
            let connection = Connection::open(&self.socket);
            self.connection = Some(connection.map_err(|error| self.unreachable(&error))?);
            // The program could not tell of changes before there was a connection.
            self.read_schema(client);
        }
        Ok(())
    }

    fn unreachable(&self, error: &io::Error) -> IpcError {
        IpcError::Connection(format!(
            "the program that has the tools cannot be reached at {}: {error}. If it still runs, call again",
            self.socket.display()
        ))
    }

    /// Gives a program up that takes nothing, though it is heard.
    pub(super) fn look_at_the_clock(&mut self, client: &mut Client) {
        let Some(since) = self.stuck_since() else { return };
        if client.is_behind() {
            self.connection.iter_mut().for_each(|it| it.stuck_since = Some(Instant::now()));
        } else if since.elapsed() > PATIENCE {
            self.tried();
            self.lose(client, Some(&io::ErrorKind::TimedOut.into()));
        }
    }

    /// Hears what the program says.
    pub(super) fn hear(&mut self, client: &mut Client) {
        if self.read(client) == Some(0) {
            self.lose(client, None);
        }
    }

    /// Reads once; `None` if there is nothing yet, 0 at the end.
    fn read(&mut self, client: &mut Client) -> Option<usize> {
        let Some(connection) = &mut self.connection else { return Some(0) };
        let read = connection.read().unwrap_or(Some(0));
        while let Some(frame) = self.connection.as_mut().and_then(Connection::next_frame) {
            self.hear_frame(frame, client);
        }
        read
    }

    fn hear_frame(&mut self, frame: Result<BytesMut, FrameTooLong>, client: &mut Client) {
        match frame.map(Message::parse_or_return) {
            Ok(Ok(message)) => match message.method().as_ref() {
                "" => self.hear_answer(&message, client),
                "progress" => self.hear_progress(&message, client),
                "tools_changed" => self.read_schema(client),
                // A newer program may say more than we know.
                _ => {}
            },
            Ok(Err((error, frame))) => {
                let error = format!("the answer cannot be read: {error}");
                let id = id_in(&frame).and_then(|id| id.parse().ok());
                self.misheard(&IpcError::Protocol(error), id, client);
            }
            Err(too_long) => self.misheard(&too_long.into(), None, client),
        }
    }

    fn hear_answer(&mut self, message: &Message, client: &mut Client) {
        let named = translate::number(message.raw(Slot::Id));
        self.answers_by_id |= named.is_some();
        let Some(id) = named.or_else(|| self.only_call()) else {
            if self.has_calls() {
                let error = IpcError::Protocol("an answer has no id".to_owned());
                self.misheard(&error, None, client);
            }
            return;
        };
        // One that was given up is answered no more.
        if let Some(open) = self.open.remove(&id) {
            client.send(translate::answer(&open.asker, message));
        }
    }

    fn hear_progress(&self, message: &Message, client: &mut Client) {
        let Some((id, members)) = translate::progress(message) else { return };
        let note = self.open.get(&id).and_then(|open| open.asker.progress(&members));
        note.into_iter().for_each(|note| client.send(note));
    }

    /// An answer that cannot be read is that of the call whose id it has, or of the only one that there is. If
    /// it could be any, none can be trusted.
    fn misheard(&mut self, error: &IpcError, id: Option<u64>, client: &mut Client) {
        let named = id.filter(|id| self.open.contains_key(id));
        match named.or_else(|| self.only_call()) {
            Some(id) => self.fail(id, error, client),
            None => {
                complain(&format!("{error}; the connection is closed"));
                self.lose(client, None);
            }
        }
    }

    /// The calls that the program has, or has a part of.
    fn with_the_program(&self) -> impl Iterator<Item = u64> {
        let begun = self.parcels.iter().take(self.begun()).filter_map(|parcel| parcel.call);
        let sent = self.open.iter().filter(|(_, open)| open.is_sent).map(|(id, _)| *id);
        begun.filter(|call| self.open.contains_key(call)).chain(sent)
    }

    fn has_calls(&self) -> bool {
        self.with_the_program().next().is_some()
    }

    /// The only call that an answer without a name can mean.
    fn only_call(&self) -> Option<u64> {
        let mut calls = self.with_the_program();
        let first = calls.next().filter(|_| calls.next().is_none());
        first.filter(|_| self.connection.as_ref().is_some_and(|it| !it.has_given_up))
    }

    /// Reads the schema file again if it is another than the one that was read.
    pub(super) fn read_schema(&mut self, client: &mut Client) {
        let version = version(&self.schema);
        if std::mem::replace(&mut self.schema_version, version) == version {
            return;
        }
        match SchemaFile::read(&self.schema) {
            Ok(schema) => {
                self.answers_by_id |= schema.answers_by_id;
                client.offer(schema);
            }
            Err(error) => {
                complain(&format!("the schema file {error}; the tools stay as they were"));
            }
        }
    }

    /// Notes that the first parcel was tried to be sent, and could not.
    fn tried(&mut self) {
        let first = self.parcels.front_mut().into_iter();
        first.for_each(|parcel| parcel.tries = parcel.tries.saturating_sub(1));
    }

    /// Forgets the connection. What became of the calls that the program has is not known.
    fn lose(&mut self, client: &mut Client, why: Option<&io::Error>) {
        if self.connection.take().is_none() {
            return;
        }
        let lost = IpcError::Connection(
            "the connection to the program that has the tools was lost during the call, and whether the tool \
             has done its work is not known. Look before you call it again"
                .to_owned(),
        );
        for (_, open) in self.open.extract_if(|_, open| open.is_sent) {
            tell(client, &open.asker, &lost);
        }
        if std::mem::take(&mut self.written) > 0 && why.is_none() {
            self.tried();
        }
        let closed = io::ErrorKind::ConnectionReset.into();
        let error = self.unreachable(why.unwrap_or(&closed));
        // A call that is not wanted any more is not sent again, and word of that was for this connection.
        self.parcels.retain(|parcel| parcel.call.is_some_and(|call| self.open.contains_key(&call)));
        if self.parcels.front().is_some_and(|parcel| parcel.tries == 0) {
            let call = self.parcels.pop_front().and_then(|parcel| parcel.call);
            call.iter().for_each(|call| self.fail(*call, &error, client));
        }
    }

    fn fail(&mut self, call: u64, error: &IpcError, client: &mut Client) {
        let open = self.open.remove(&call);
        open.iter().for_each(|open| tell(client, &open.asker, error));
    }
}

fn tell(client: &mut Client, asker: &Asker, error: &IpcError) {
    client.send(asker.fail(error.wire_type(), &error.to_string()));
}

/// Which file it is, and from when.
type Version = (u64, u64, SystemTime);

fn version(file: &Path) -> Option<Version> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.modified().ok()?))
}

//! The program that has the tools: one connection to it, kept, and the calls that it has yet to answer.
//!
//! Answers find their calls by id. A program that gives no ids back gets one call at a time, and a call that
//! is given up there takes its connection with it: the late answer must not be the next call's.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::BytesMut;
use pontoon_wire::framing::frames::FrameTooLong;
use pontoon_wire::{Message, Slot};
use rustix::event::PollFlags;

use super::client::Client;
use super::connection::Connection;
use super::console::complain;
use super::translate;
use crate::conversation::{Asker, ToolRequest, id_in};
use crate::protocol::IpcError;
use crate::schema_file::SchemaFile;

/// How many calls may be under way or wait.
const MAX_OPEN: usize = 1024;

/// How many bytes of calls may wait until the program takes them.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// How many bytes a program may still say when it takes no more: what it wrote before it was gone is in the buffer of
/// the socket.
const MAX_LAST_WORDS: usize = 1024 * 1024;

/// How many messages are written at once.
const PARCELS_AT_ONCE: usize = 64;

/// The program.
#[derive(Debug)]
pub(super) struct Host {
    socket: PathBuf,
    schema: PathBuf,
    schema_version: Option<Version>,
    /// Whether the schema file says that the program answers by id.
    says_by_id: bool,
    /// Whether the program does, so that several calls may be under way.
    answers_by_id: bool,
    connection: Option<Connection>,
    /// Whether a call that was sent on the connection was given up: its answer may still come.
    has_given_up: bool,
    calls: u64,
    open: HashMap<u64, OpenCall>,
    /// What has yet to be sent.
    parcels: VecDeque<Parcel>,
    /// How much of the first parcel is written.
    written: usize,
}

/// A call that is not answered yet.
#[derive(Debug)]
struct OpenCall {
    asker: Asker,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has yet to be sent.
    Waiting,
    /// The program has a part of it.
    Begun,
    /// The program has all of it.
    Sent,
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
            says_by_id: answers_by_id,
            answers_by_id,
            connection: None,
            has_given_up: false,
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
            .and_then(|frame| self.check_room(frame.len() + size(&asker)).map(|()| frame));
        match taken {
            Ok(frame) => {
                self.open.insert(id, OpenCall { asker, stage: Stage::Waiting });
                self.parcels.push_back(Parcel { call: Some(id), frame, tries: 2 });
            }
            Err(error) => tell(client, &asker, &error),
        }
    }

    /// Whether another call of this size may wait.
    fn check_room(&self, bytes: usize) -> Result<(), IpcError> {
        let busy = |count: usize, what: &str| {
            let busy = format!("{count} {what}; call again when some are answered");
            Err(IpcError::Connection(busy))
        };
        if self.open.len() >= MAX_OPEN {
            return busy(MAX_OPEN, "calls are under way already");
        }
        // The one that is being sent does not wait.
        let waiting = self.parcels.iter().skip(usize::from(self.written > 0));
        let waiting: usize = waiting.map(|parcel| parcel.frame.len()).sum();
        let askers: usize = self.open.values().map(|open| size(&open.asker)).sum();
        if waiting + askers + bytes > MAX_WAITING_BYTES {
            return busy(waiting + askers, "bytes of calls wait until the program takes them");
        }
        Ok(())
    }

    /// Gives a call of the client's up. It is not answered any more.
    pub(super) fn cancel(&mut self, client_id: &[u8], client: &mut Client) {
        let found = self.open.iter().find(|(_, open)| open.asker.id == client_id);
        let Some((id, stage)) = found.map(|(id, open)| (*id, open.stage)) else { return };
        self.open.remove(&id);
        if stage == Stage::Waiting {
            self.parcels.retain(|parcel| parcel.call != Some(id));
        } else if self.answers_by_id {
            self.has_given_up = true;
            // Before the calls that wait, and not within a message.
            let next = usize::from(self.written > 0);
            self.parcels
                .insert(next, Parcel { call: None, frame: translate::cancel(id), tries: 0 });
        } else {
            self.lose(client, None);
        }
    }

    /// Whether the program has yet to answer something.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// What to wait for, if there is anything. While the client reads nothing, the program is not heard: it could
    /// say more than there is room for.
    pub(super) fn events(&self, client: &Client) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let connection = self.connection.as_ref()?;
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, client.has_room());
        events.set(PollFlags::OUT, connection.is_stuck() && !self.parcels.is_empty());
        // The end of the connection would be told all the time.
        (!events.is_empty()).then(|| (connection.as_fd(), events))
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
                if let Some(call) = call {
                    self.fail(call, &error, client);
                }
                continue;
            }
            match self.write(client.has_room()) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => self.lose(client, Some(&error)),
            }
        }
    }

    /// Writes once, and gives how much that was.
    fn write(&mut self, is_heard: bool) -> io::Result<usize> {
        let Some(connection) = &mut self.connection else { return Ok(0) };
        let count = if self.answers_by_id { PARCELS_AT_ONCE } else { 1 };
        let mut pieces: Vec<_> =
            self.parcels.iter().take(count).map(|parcel| IoSlice::new(&parcel.frame)).collect();
        let mut left = &mut pieces[..];
        IoSlice::advance_slices(&mut left, self.written);
        let written = connection.write(left, is_heard)?;
        self.written += written;
        while let Some(first) = self.parcels.front()
            && self.written > 0
        {
            let is_whole = self.written >= first.frame.len();
            if let Some(open) = first.call.and_then(|call| self.open.get_mut(&call)) {
                open.stage = if is_whole { Stage::Sent } else { Stage::Begun };
            }
            if !is_whole {
                break;
            }
            self.written -= first.frame.len();
            self.parcels.pop_front();
        }
        Ok(written)
    }

    fn connect(&mut self, client: &mut Client) -> Result<(), IpcError> {
        if self.connection.is_none() {
            let connection = Connection::open(&self.socket);
            self.connection = Some(connection.map_err(|error| self.unreachable(&error))?);
            // It may be another program than the last one.
            (self.has_given_up, self.answers_by_id) = (false, self.says_by_id);
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

    /// Hears what the program says, if there is room for it.
    pub(super) fn hear(&mut self, client: &mut Client) {
        let Some(connection) = self.connection.as_mut().filter(|_| client.has_room()) else {
            return;
        };
        let read = connection.read();
        while let Some(frame) = self.connection.as_mut().and_then(Connection::next_frame) {
            self.hear_frame(frame, client);
        }
        if matches!(read, Ok(Some(0)) | Err(_)) {
            self.lose(client, None);
        }
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
        if let Some(asker) = self.answered(id) {
            client.send(translate::answer(&asker, message));
        }
    }

    /// Takes the call that an answer is for. One that was given up is answered no more, and one that the program
    /// does not have cannot be.
    fn answered(&mut self, call: u64) -> Option<Asker> {
        self.open.get(&call).filter(|open| open.stage != Stage::Waiting)?;
        self.open.remove(&call).map(|open| open.asker)
    }

    fn hear_progress(&self, message: &Message, client: &mut Client) {
        let Some((id, members)) = translate::progress(message) else { return };
        if let Some(note) = self.open.get(&id).and_then(|open| open.asker.progress(&members)) {
            client.send(note);
        }
    }

    /// An answer that cannot be read is that of the call whose id it has, or of the only one that there is. If
    /// it could be any, none can be trusted.
    fn misheard(&mut self, error: &IpcError, named: Option<u64>, client: &mut Client) {
        match named.filter(|id| *id <= self.calls).or_else(|| self.only_call()) {
            Some(id) => {
                if let Some(asker) = self.answered(id) {
                    tell(client, &asker, error);
                }
            }
            None => {
                complain(&format!("{error}; the connection is closed"));
                self.lose(client, None);
            }
        }
    }

    /// The calls that the program has, or has a part of.
    fn with_the_program(&self) -> impl Iterator<Item = u64> {
        self.open.iter().filter(|(_, open)| open.stage != Stage::Waiting).map(|(id, _)| *id)
    }

    fn has_calls(&self) -> bool {
        self.with_the_program().next().is_some()
    }

    /// The only call that an answer without a name can mean.
    fn only_call(&self) -> Option<u64> {
        let mut calls = self.with_the_program();
        calls.next().filter(|_| calls.next().is_none() && !self.has_given_up)
    }

    /// Reads the schema file again if it is another than the one that was read.
    pub(super) fn read_schema(&mut self, client: &mut Client) {
        let version = version(&self.schema);
        if std::mem::replace(&mut self.schema_version, version) == version {
            return;
        }
        match SchemaFile::read(&self.schema) {
            Ok(schema) => {
                self.says_by_id = schema.answers_by_id;
                self.answers_by_id |= schema.answers_by_id;
                client.offer(&schema);
            }
            Err(error) => {
                complain(&format!("the schema file {error}; the tools stay as they were"));
            }
        }
    }

    /// Forgets the connection, because of an error while something was sent or without one. What became of the
    /// calls that the program has is not known.
    fn lose(&mut self, client: &mut Client, why: Option<&io::Error>) {
        let Some(connection) = self.connection.take() else { return };
        let was_tried = std::mem::take(&mut self.written) > 0 || why.is_some();
        if why.is_some() {
            self.hear_last_words(connection, client);
        }
        let lost = IpcError::Connection(
            "the connection to the program that has the tools was lost during the call, and whether the tool \
             has done its work is not known. Look before you call it again"
                .to_owned(),
        );
        for (_, open) in self.open.extract_if(|_, open| open.stage == Stage::Sent) {
            tell(client, &open.asker, &lost);
        }
        let Some(first) = self.parcels.front_mut() else { return };
        let has_failed = was_tried && first.tries <= 1;
        first.tries -= u32::from(was_tried && first.tries > 0);
        if let Some(call) = first.call.filter(|_| has_failed) {
            let closed = io::ErrorKind::ConnectionReset.into();
            let error = self.unreachable(why.unwrap_or(&closed));
            self.fail(call, &error, client);
        }
        // What is not wanted any more is not sent again, and word that a call was given up was for this connection.
        self.parcels.retain(|parcel| parcel.call.is_some_and(|call| self.open.contains_key(&call)));
        for open in self.open.values_mut() {
            open.stage = Stage::Waiting;
        }
    }

    /// Hears what the program said before it took no more. One that goes on and on is not heard to the end.
    fn hear_last_words(&mut self, mut connection: Connection, client: &mut Client) {
        let mut room = MAX_LAST_WORDS;
        while room > 0
            && let Ok(Some(read @ 1..)) = connection.read()
        {
            room = room.saturating_sub(read);
            while let Some(frame) = connection.next_frame() {
                self.hear_frame(frame, client);
            }
        }
    }

    fn fail(&mut self, call: u64, error: &IpcError, client: &mut Client) {
        if let Some(open) = self.open.remove(&call) {
            tell(client, &open.asker, error);
        }
    }
}

/// How much is kept of who asked.
fn size(asker: &Asker) -> usize {
    asker.id.len() + asker.progress_token.as_ref().map_or(0, |token| token.len())
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

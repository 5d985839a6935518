//! The program that has the tools: one connection to it, kept, and the calls that it has yet to answer.
//!
//! Answers find their calls by id. A program that gives no ids back gets one call at a time, and a call that
//! is given up there takes its connection with it: the late answer must not be the next call's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pontoon_wire::framing::frames::Frames;
use pontoon_wire::{Message, Slot, json, string_value};

use super::client::Client;
use super::complain;
use super::connection::{Connection, read_some};
use super::sending::Parcel;
use crate::conversation::{Asker, ToolRequest, failure, id_in};
use crate::protocol::{IpcError, MAX_MESSAGE_SIZE, frame};
use crate::schema_file::SchemaFile;

/// How many calls may be under way or wait.
const MAX_OPEN: usize = 1024;

/// How many bytes of calls may wait until the program takes them.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// How long calls may still run when the input has ended. A client that closed it waits about two seconds
/// before it sends a signal.
const GRACE: Duration = Duration::from_secs(1);

/// The program.
#[derive(Debug)]
pub(super) struct Host {
    socket: PathBuf,
    schema: PathBuf,
    client: Arc<Client>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Whether several calls may be under way.
    answers_by_id: bool,
    connection: Option<Arc<Connection>>,
    /// Connections up to this number are lost.
    lost: u64,
    connections: u64,
    calls: u64,
    open: HashMap<u64, Open>,
    /// The call that has its turn, where there is one at a time.
    in_turn: Option<u64>,
    waiting: VecDeque<Parcel>,
    /// Word of calls that were given up, for the program. They are no more than it has calls.
    cancels: VecDeque<Parcel>,
    /// Whether a thread is sending what waits.
    pub(super) is_sending: bool,
    /// Calls that were given up while they were being sent.
    given_up: HashSet<u64>,
    /// Answers that are being written to the client.
    telling: usize,
    schema_version: Option<Version>,
}

/// A call that is not answered yet.
#[derive(Debug)]
struct Open {
    asker: Asker,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has yet to be sent.
    Waiting,
    /// It is being sent; the program may have it.
    Sending,
    /// The program got it on the connection with this number.
    Sent(u64),
}

impl State {
    /// Why a call cannot even wait.
    fn too_much(&self, parcel: &Parcel) -> Option<String> {
        if self.open.len() >= MAX_OPEN {
            let what = "calls are under way already; call again when some are answered";
            return Some(format!("{MAX_OPEN} {what}"));
        }
        let bytes: usize = self.waiting.iter().map(Parcel::size).sum();
        (bytes + parcel.size() > MAX_WAITING_BYTES).then(|| {
            let what = "bytes of calls wait until the program takes them; call again when some are answered";
            format!("{bytes} {what}")
        })
    }

    fn is_current(&self, connection: u64) -> bool {
        self.connection.as_ref().is_some_and(|current| current.number == connection)
    }

    /// The call that the program has, if it has only one.
    fn only_sent(&self) -> Option<u64> {
        let mut sent = self.open.iter().filter(|(_, open)| open.stage != Stage::Waiting);
        sent.next().map(|(id, _)| *id).filter(|_| sent.next().is_none())
    }
}

impl Host {
    pub(super) fn new(
        socket: PathBuf,
        answers_by_id: bool,
        client: Arc<Client>,
        schema: &Path,
    ) -> Arc<Self> {
        let state = State {
            answers_by_id,
            connection: None,
            lost: 0,
            connections: 0,
            calls: 0,
            open: HashMap::new(),
            in_turn: None,
            waiting: VecDeque::new(),
            cancels: VecDeque::new(),
            is_sending: false,
            given_up: HashSet::new(),
            telling: 0,
            schema_version: version(schema),
        };
        let (schema, state) = (schema.to_owned(), Mutex::new(state));
        Arc::new(Self { socket, schema, client, state })
    }

    /// Passes a call on, now or when it is its turn.
    pub(super) fn call(self: &Arc<Self>, request: &ToolRequest) {
        let asker = request.asker.clone();
        let mut state = self.lock();
        state.calls += 1;
        let id = state.calls;
        let frame = match call_frame(id, request, state.answers_by_id) {
            Ok(frame) => frame,
            Err(error) => {
                drop(state);
                return self.tell(&asker, &error);
            }
        };
        let parcel = Parcel::call(id, frame);
        if let Some(busy) = state.too_much(&parcel) {
            drop(state);
            return self.tell(&asker, &IpcError::Connection(busy));
        }
        state.open.insert(id, Open { asker, stage: Stage::Waiting });
        state.waiting.push_back(parcel);
        drop(state);
        self.send_waiting();
    }

    /// Gives a call of the client's up. It is not answered any more.
    pub(super) fn cancel(self: &Arc<Self>, client_id: &[u8]) {
        let mut state = self.lock();
        let found = state.open.iter().find(|(_, open)| open.asker.id == client_id);
        let Some(id) = found.map(|(id, _)| *id) else { return };
        let stage = state.open.remove(&id).map(|open| open.stage);
        state.waiting.retain(|waiting| waiting.id() != Some(id));
        let had_its_turn = state.in_turn == Some(id);
        let connection = match had_its_turn {
            true => {
                state.in_turn = None;
                state.connection.take()
            }
            false => state.connection.clone().filter(|it| stage == Some(Stage::Sent(it.number))),
        };
        if stage == Some(Stage::Sending) && !had_its_turn {
            state.given_up.insert(id);
        }
        match connection {
            // Also if it is just being written: then that fails, and it is not sent again.
            Some(connection) if had_its_turn => connection.close(),
            Some(connection) => state.cancels.push_back(Parcel::cancel(id, connection)),
            None => {}
        }
        drop(state);
        self.send_waiting();
    }

    /// Lets calls that are under way end, for a moment, if there is a client to hear of it.
    pub(super) fn finish(&self) {
        let give_up = Instant::now() + GRACE;
        // What is half written is worth more time.
        let cut_off = give_up + 10 * GRACE;
        // A client that reads nothing may keep a thread of ours with the lock.
        let is_done = || {
            let Ok(state) = self.state.try_lock() else { return Instant::now() >= give_up };
            let is_late = Instant::now() >= if state.telling > 0 { cut_off } else { give_up };
            is_late || state.open.is_empty() && state.telling == 0
        };
        while !is_done() && !self.client.is_gone() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What is to be sent next. If there is nothing, the thread that asks is not sending any more.
    pub(super) fn next_parcel(&self) -> Option<Parcel> {
        let mut state = self.lock();
        let next = state.cancels.pop_front().or_else(|| match state.in_turn {
            Some(_) if !state.answers_by_id => None,
            _ => state.waiting.pop_front(),
        });
        if let Some(id) = next.as_ref().and_then(Parcel::id)
            && !state.answers_by_id
        {
            state.in_turn = Some(id);
        }
        state.is_sending = next.is_some();
        next
    }

    /// Whether a call is still wanted.
    pub(super) fn is_open(&self, id: u64) -> bool {
        self.lock().open.contains_key(&id)
    }

    /// Notes that a call is being sent; `false` if it was given up.
    pub(super) fn begin(&self, id: u64) -> bool {
        let mut state = self.lock();
        state.given_up.remove(&id);
        state.open.get_mut(&id).map(|open| open.stage = Stage::Sending).is_some()
    }

    /// Notes that the program has a call, on this connection.
    pub(super) fn sent(self: &Arc<Self>, id: u64, connection: &Arc<Connection>) {
        let mut state = self.lock();
        if state.given_up.remove(&id) {
            state.cancels.push_back(Parcel::cancel(id, Arc::clone(connection)));
            return;
        }
        let number = connection.number;
        let is_lost = state.lost >= number;
        let Some(open) = state.open.get_mut(&id) else { return };
        open.stage = Stage::Sent(number);
        drop(state);
        if is_lost {
            self.lose(number);
        }
    }

    /// The connection, made if there is none.
    pub(super) fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, IpcError> {
        let mut state = self.lock();
        if let Some(connection) = &state.connection {
            return Ok(Arc::clone(connection));
        }
        let number = state.connections + 1;
        let opened = Connection::open(&self.socket, number);
        let (connection, reading) = opened.map_err(|error| self.unreachable(&error))?;
        let connection = Arc::new(connection);
        state.connections = number;
        let host = Arc::clone(self);
        let reader = move || host.read(reading, number);
        let started = std::thread::Builder::new().spawn(reader);
        started.map_err(|error| self.unreachable(&error))?;
        state.connection = Some(Arc::clone(&connection));
        drop(state);
        // The program could not tell of changes before there was a connection.
        self.read_schema();
        Ok(connection)
    }

    pub(super) fn unreachable(&self, error: &io::Error) -> IpcError {
        IpcError::Connection(format!(
            "the program that has the tools cannot be reached at {}: {error}. If it still runs, call again",
            self.socket.display()
        ))
    }

    /// The thread of a connection: hears what the program says.
    fn read(self: Arc<Self>, mut stream: UnixStream, number: u64) {
        let mut frames = Frames::new(MAX_MESSAGE_SIZE);
        while let Ok(1..) = read_some(&mut stream, frames.buffer()) {
            while let Some(frame) = frames.next_frame() {
                match frame.map(Message::parse_or_return) {
                    Ok(Ok(message)) => self.hear(&message, &stream, number),
                    Ok(Err((error, frame))) => {
                        let error = format!("the answer cannot be read: {error}");
                        let id = id_in(&frame).and_then(|id| id.parse().ok());
                        self.misheard(&IpcError::Protocol(error), id, &stream, number);
                    }
                    Err(too_long) => self.misheard(&too_long.into(), None, &stream, number),
                }
            }
        }
        self.lose(number);
        self.send_waiting();
    }

    fn hear(self: &Arc<Self>, message: &Message, stream: &UnixStream, connection: u64) {
        match message.method().as_ref() {
            "" => self.hear_answer(message, stream, connection),
            "progress" => self.hear_progress(message),
            "tools_changed" => self.read_schema(),
            // A newer program may say more than we know.
            _ => {}
        }
    }

    /// Reads the schema file again if it is another than the one that was read.
    pub(super) fn read_schema(&self) {
        let version = version(&self.schema);
        if std::mem::replace(&mut self.lock().schema_version, version) == version {
            return;
        }
        match SchemaFile::read(&self.schema) {
            Ok(schema) => {
                self.lock().answers_by_id |= schema.answers_by_id;
                self.client.offer(schema);
            }
            Err(error) => {
                complain(&format!("the schema file {error}; the tools stay as they were"))
            }
        }
    }

    fn hear_answer(self: &Arc<Self>, message: &Message, stream: &UnixStream, connection: u64) {
        let mut state = self.lock();
        let is_current = state.is_current(connection);
        let id = match number(message.raw(Slot::Id)) {
            Some(id) => {
                state.answers_by_id = true;
                state.in_turn = state.in_turn.filter(|in_turn| *in_turn != id);
                Some(id)
            }
            // The answer to a call that was given up, with its connection.
            None if !is_current => None,
            None if state.answers_by_id => {
                let only = state.only_sent();
                if only.is_none() && !state.open.is_empty() {
                    drop(state);
                    let error = IpcError::Protocol("an answer has no id".to_owned());
                    return self.misheard(&error, None, stream, connection);
                }
                only
            }
            None => state.in_turn.take(),
        };
        // One that was given up is answered no more.
        let open = id.and_then(|id| state.open.remove(&id));
        state.telling += 1;
        drop(state);
        if let Some(open) = open {
            self.client.send(&answer(&open.asker, message));
        }
        self.told();
        self.send_waiting();
    }

    fn hear_progress(&self, message: &Message) {
        let params = message.raw(Slot::Params).unwrap_or(b"{}");
        let Some(id) = number(json::find(params, "id")) else { return };
        let is_number =
            |raw: &[u8]| raw.first().is_some_and(|it| it.is_ascii_digit() || *it == b'-');
        if !json::find(params, "progress").is_some_and(is_number) {
            return;
        }
        let member = |name: &str| {
            let value = json::find(params, name).filter(|value| *value != b"null")?;
            Some(format!("\"{name}\":{}", String::from_utf8_lossy(value)))
        };
        let members: Vec<_> =
            ["progress", "total", "message"].into_iter().filter_map(member).collect();
        // Held until it is sent: no progress may follow the answer.
        let state = self.lock();
        let note = state.open.get(&id).and_then(|open| open.asker.progress(&members.join(",")));
        note.iter().for_each(|note| self.client.send(note.as_bytes()));
    }

    /// An answer that cannot be read is that of the call whose id it has, or of the only one that there is. If
    /// it could be any, none can be trusted.
    fn misheard(
        self: &Arc<Self>,
        error: &IpcError,
        id: Option<u64>,
        stream: &UnixStream,
        connection: u64,
    ) {
        let meant = {
            let state = self.lock();
            let named = id.filter(|id| state.open.contains_key(id));
            let only = named.or(state.in_turn).or_else(|| state.only_sent());
            only.filter(|_| state.is_current(connection))
        };
        match meant {
            Some(id) => {
                self.fail(id, error);
                self.send_waiting();
            }
            None => {
                complain(&format!("{error}; the connection is closed"));
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Forgets a connection. What became of the calls that the program has is not known.
    pub(super) fn lose(&self, number: u64) {
        let mut state = self.lock();
        state.lost = state.lost.max(number);
        state.connection = state.connection.take().filter(|it| it.number > number);
        let lost = |open: &Open| matches!(open.stage, Stage::Sent(sent_on) if sent_on <= number);
        let calls: Vec<_> = state.open.extract_if(|_, open| lost(open)).collect();
        if state.in_turn.is_some_and(|id| calls.iter().any(|(lost, _)| *lost == id)) {
            state.in_turn = None;
        }
        state.telling += 1;
        drop(state);
        let error = IpcError::Connection(
            "the connection to the program that has the tools was lost during the call, and whether the tool \
             has done its work is not known. Look before you call it again"
                .to_owned(),
        );
        calls.iter().for_each(|(_, open)| self.tell(&open.asker, &error));
        self.told();
    }

    pub(super) fn fail(self: &Arc<Self>, id: u64, error: &IpcError) {
        let mut state = self.lock();
        let open = state.open.remove(&id);
        if state.in_turn == Some(id) {
            state.in_turn = None;
        }
        state.telling += 1;
        drop(state);
        open.iter().for_each(|open| self.tell(&open.asker, error));
        self.told();
    }

    /// What was being written to the client is.
    fn told(&self) {
        self.lock().telling -= 1;
    }

    fn tell(&self, asker: &Asker, error: &IpcError) {
        self.client.send(&asker.fail(error.wire_type(), &error.to_string()));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call as the program gets it.
fn call_frame(id: u64, request: &ToolRequest, answers_by_id: bool) -> Result<Vec<u8>, IpcError> {
    let head = format!(
        "{{\"id\":{id},\"method\":\"call_tool\",\"params\":{{\"name\":{},\"arguments\":",
        pontoon_wire::quoted(&request.name())
    );
    let meta = request.meta().filter(|_| answers_by_id);
    let (key, meta): (&[u8], _) = meta.map_or((b"", b"".as_slice()), |meta| (b",\"meta\":", meta));
    Ok(frame(&[head.as_bytes(), request.arguments(), b"}", key, meta, b"}"])?)
}

/// What the client hears of an answer.
fn answer(asker: &Asker, message: &Message) -> Vec<u8> {
    if let Some(result) = message.raw(Slot::Result).filter(|raw| raw.first() == Some(&b'{')) {
        return asker.answer(&with_content(result));
    }
    let error = message.raw(Slot::Error).filter(|raw| raw.first() == Some(&b'{')).unwrap_or(b"{}");
    let text = |name| json::find(error, name).and_then(string_value);
    let kind = text("type").unwrap_or("IPCError".into());
    let what =
        text("message").unwrap_or("the program's answer has neither a result nor an error".into());
    asker.answer(failure(&kind, &what).as_bytes())
}

/// The result with the content that clients insist on.
fn with_content(result: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if json::find(result, "content").is_some() {
        return result.into();
    }
    let comma: &[u8] = match json::entries(result, 0..result.len()).next() {
        Some(_) => b",",
        None => b"",
    };
    [b"{\"content\":[]", comma, &result[1..]].concat().into()
}

fn number(raw: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(raw?).ok()?.parse().ok()
}

/// Which file it is, and from when.
type Version = (u64, u64, SystemTime);

fn version(file: &Path) -> Option<Version> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.modified().ok()?))
}

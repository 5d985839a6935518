//! An application that serves MCP by itself over a WebSocket, a TCP port or a Unix socket, and that comes and goes.
//!
//! It works on one call at a time for each connection, as applications with one main thread do, and notes every call
//! that it carries out. Its tools: `echo` gives `text` back, `read` does and is marked as read-only, `die` closes every
//! connection before it answers, `die_once` does so the first time for a text and is marked as idempotent, `wait` takes
//! `ms` milliseconds, `silent` never answers, `fail` gives the error `error`, `read` with `ms` "for ever" never answers, `ask` asks the client something and never answers, `grow` adds a tool named by `text` and says
//! that the tools changed, and `tell` says `note`, a notification of no call, before it answers, and progress with its text if it is asked for that.
//!
//! Its resources, if it has any: `app://scene` is read as its own address, and `app://once` closes every connection the first time.

mod answers;
mod coming;
mod stream;
mod unwell;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::{HeaderMap, StatusCode};
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Message, WebSocket};

pub use coming::ComingApp;
use stream::{Duplex, Ending};
pub use unwell::{Illness, UnwellApp};

/// How an application is.
#[derive(Debug, Clone)]
pub struct Manner {
    /// It speaks the modern era alone.
    pub is_modern: bool,
    /// It agrees to the sub-protocol `mcp`.
    pub knows_subprotocol: bool,
    /// The token that it wants.
    pub token: Option<String>,
    /// The names of further tools.
    pub more_tools: Vec<String>,
    /// It answers notifications, as seed applications do: with nothing in a frame, and with `""`.
    pub answers_notifications: bool,
    /// It sends its messages in frames of bytes.
    pub sends_bytes: bool,
    /// It has room for one connection, and sends others away.
    pub takes_one: bool,
    /// It sends its messages in pieces of this length.
    pub fragment: Option<usize>,
    /// The longest message that it takes.
    pub max_message: usize,
    /// It has one client at a time: the next takes the place of the last.
    pub is_single: bool,
    /// What it says of its version.
    pub version: String,
    /// It has resources, to which clients can subscribe.
    pub has_resources: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            is_modern: false,
            knows_subprotocol: true,
            token: None,
            more_tools: Vec::new(),
            answers_notifications: false,
            sends_bytes: false,
            takes_one: false,
            fragment: None,
            max_message: 64 << 20,
            is_single: false,
            version: "1".to_owned(),
            has_resources: false,
        }
    }
}

/// What stays when an application is closed and started again: the calls that it carried out, by their texts.
#[derive(Debug, Clone, Default)]
pub struct Deeds(Arc<Mutex<HashMap<String, usize>>>);

impl Deeds {
    /// How often a call with this text was carried out.
    pub fn count(&self, text: &str) -> usize {
        self.0.lock().expect("no thread panics with it").get(text).copied().unwrap_or(0)
    }

    /// Those that were carried out more than once.
    pub fn repeated(&self) -> Vec<String> {
        let deeds = self.0.lock().expect("no thread panics with it");
        deeds.iter().filter(|(_, count)| **count > 1).map(|(text, _)| text.clone()).collect()
    }

    fn add(&self, text: &str) -> usize {
        let mut deeds = self.0.lock().expect("no thread panics with it");
        let count = deeds.entry(text.to_owned()).or_default();
        *count += 1;
        *count
    }
}

/// Where an application listens.
#[derive(Debug, Clone)]
pub enum Place {
    /// A WebSocket at this port of the loopback; zero chooses one.
    WebSocket(u16),
    /// The same at `::1`, and not at `127.0.0.1`.
    WebSocketV6(u16),
    /// The same inside TLS.
    WebSocketTls(u16, Arc<ServerConfig>),
    /// A WebSocket behind this Unix socket.
    WebSocketUnix(PathBuf),
    /// Lines at this port.
    Tcp(u16),
    /// Lines behind this Unix socket.
    Unix(PathBuf),
}

/// An application that runs.
#[derive(Debug)]
pub struct LiveApp {
    place: Place,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    manner: Mutex<Manner>,
    deeds: Deeds,
    is_closed: AtomicBool,
    /// What ends the connections that are open.
    connections: Mutex<Vec<Box<dyn Ending>>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    /// Connections for which there was no room.
    sent_away: AtomicUsize,
    /// Connections that the other side closed in order.
    closed: AtomicUsize,
    /// The methods of all that it heard.
    heard: Mutex<Vec<String>>,
    /// Whether it hangs, and what wakes its threads.
    hangs: (Mutex<bool>, Condvar),
    /// The next answer ends in the middle of its frame, and with it the connection.
    cuts: AtomicBool,
    /// The headers of the newest opening.
    shown: Mutex<HeaderMap>,
}

impl LiveApp {
    /// Starts one there. What it does is added to these deeds.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start(place: &Place, manner: Manner, deeds: &Deeds) -> Self {
        let shared = Arc::new(Shared::new(manner, deeds));
        let serving = Arc::clone(&shared);
        let (place, listening) = match place {
            Place::WebSocket(port) | Place::Tcp(port) => {
                let listener = bind(*port);
                let port = listener.local_addr().expect("it is bound").port();
                let is_web = matches!(place, Place::WebSocket(_));
                let place = if is_web { Place::WebSocket(port) } else { Place::Tcp(port) };
                let accept = move || {
                    let (stream, _) = listener.accept()?;
                    stream.set_nodelay(true)?;
                    Ok(stream)
                };
                (place, thread::spawn(move || listen(&serving, accept, is_web)))
            }
            Place::WebSocketV6(port) => {
                let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, *port)).expect("a port");
                let port = listener.local_addr().expect("it is bound").port();
                let accept = move || listener.accept().map(|(stream, _)| stream);
                (Place::WebSocketV6(port), thread::spawn(move || listen(&serving, accept, true)))
            }
            Place::WebSocketTls(port, config) => {
                let (listener, config) = (bind(*port), Arc::clone(config));
                let port = listener.local_addr().expect("it is bound").port();
                let place = Place::WebSocketTls(port, Arc::clone(&config));
                let accept = move || {
                    let (stream, _) = listener.accept()?;
                    let session = ServerConnection::new(Arc::clone(&config));
                    Ok(StreamOwned::new(session.expect("a good configuration"), stream))
                };
                (place, thread::spawn(move || listen(&serving, accept, true)))
            }
            Place::WebSocketUnix(path) | Place::Unix(path) => {
                let _ = std::fs::remove_file(path);
                let listener = UnixListener::bind(path).expect("a socket");
                let is_web = matches!(place, Place::WebSocketUnix(_));
                let accept = move || listener.accept().map(|(stream, _)| stream);
                (place.clone(), thread::spawn(move || listen(&serving, accept, is_web)))
            }
        };
        Self { place, shared, listening: Some(listening) }
    }

    /// Where it is, so that it can be started there again.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// Its address, as `pontoon connect` wants it.
    pub fn url(&self) -> String {
        match &self.place {
            Place::WebSocket(port) => format!("ws://127.0.0.1:{port}"),
            Place::WebSocketV6(port) => format!("ws://localhost:{port}"),
            Place::WebSocketTls(port, _) => format!("wss://localhost:{port}"),
            Place::Tcp(port) => format!("tcp://127.0.0.1:{port}"),
            Place::WebSocketUnix(path) => format!("ws+unix:{}", path.display()),
            Place::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// How many connections it took.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections it sent away, for want of room.
    pub fn sent_away(&self) -> usize {
        self.shared.sent_away.load(Ordering::SeqCst)
    }

    /// How many connections were closed in order by the other side.
    pub fn closed(&self) -> usize {
        self.shared.closed.load(Ordering::SeqCst)
    }

    /// How often it heard this method.
    pub fn heard(&self, method: &str) -> usize {
        let heard = self.shared.heard.lock().expect("no thread panics with it");
        heard.iter().filter(|it| *it == method).count()
    }

    /// The headers that it was shown last.
    pub fn shown(&self) -> HeaderMap {
        self.shared.shown.lock().expect("no thread panics with it").clone()
    }

    /// Closes all connections, as an application does that falls over, and goes on listening.
    pub fn drop_connections(&self) {
        self.shared.drop_connections();
    }

    /// Reads and answers nothing from now on, or goes on.
    ///
    /// # Panics
    ///
    /// When one of its threads did.
    pub fn hang(&self, hangs: bool) {
        *self.shared.hangs.0.lock().expect("no thread panics with it") = hangs;
        self.shared.hangs.1.notify_all();
    }

    /// Ends a connection in the middle of the frame with its next answer.
    pub fn cut_next_answer(&self) {
        self.shared.cuts.store(true, Ordering::SeqCst);
    }

    /// Whether an answer was cut since that was asked for.
    pub fn has_cut(&self) -> bool {
        !self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Closes it, with all its connections.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.hang(false);
        // It waits for a connection, and this is the last one.
        match &self.place {
            Place::WebSocket(port) | Place::WebSocketTls(port, _) | Place::Tcp(port) => {
                drop(TcpStream::connect(("127.0.0.1", *port)));
            }
            Place::WebSocketV6(port) => {
                drop(TcpStream::connect((Ipv6Addr::LOCALHOST, *port)));
            }
            Place::Unix(path) | Place::WebSocketUnix(path) => drop(UnixStream::connect(path)),
        }
        if let Some(listening) = self.listening.take() {
            listening.join().expect("it does not panic");
        }
        self.shared.drop_connections();
        if let Place::Unix(path) | Place::WebSocketUnix(path) = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for LiveApp {
    fn drop(&mut self) {
        self.end();
    }
}

/// Listens at a port, also at one that was closed just now.
fn bind(port: u16) -> TcpListener {
    for _ in 0..200 {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return listener,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("port {port}: {error}"),
        }
    }
    panic!("port {port} stays in use");
}

fn listen<S: Duplex>(shared: &Arc<Shared>, accept: impl Fn() -> std::io::Result<S>, is_web: bool) {
    while !shared.is_closed.load(Ordering::SeqCst) {
        let Ok(stream) = accept() else { continue };
        if shared.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let takes_one = shared.manner.lock().expect("no thread panics with it").takes_one;
        if takes_one && shared.open.load(Ordering::SeqCst) > 0 {
            shared.sent_away.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        if shared.manner.lock().expect("no thread panics with it").is_single {
            shared.evict_connections();
        }
        shared.connections.lock().expect("no thread panics with it").push(stream.ending());
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            match is_web {
                true => serve_web(&shared, stream),
                false => serve_lines(&shared, stream),
            }
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn serve_web(shared: &Shared, stream: impl Duplex) {
    let manner = shared.manner.lock().expect("no thread panics with it").clone();
    #[expect(clippy::result_large_err, reason = "the library wants it so")]
    let greet = |request: &Request, mut response: Response| {
        *shared.shown.lock().expect("no thread panics with it") = request.headers().clone();
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = &manner.token
            && header("authorization") != Some(&format!("Bearer {token}"))
        {
            let mut refused = ErrorResponse::new(None);
            *refused.status_mut() = StatusCode::UNAUTHORIZED;
            return Err(refused);
        }
        if manner.knows_subprotocol && header("sec-websocket-protocol") == Some("mcp") {
            response.headers_mut().insert("sec-websocket-protocol", "mcp".parse().expect("a word"));
        }
        Ok(response)
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(manner.max_message))
        .max_frame_size(Some(manner.max_message));
    let accepted = tungstenite::accept_hdr_with_config(stream, greet, Some(config));
    let Ok(mut socket) = accepted else { return };
    serve_frames(shared, &mut socket, &manner);
    // Unless the connection is gone already.
    let _ = socket.close(None);
    let _ = socket.flush();
}

/// Answers what comes, until the connection ends; gives the code that the other side closed it with, 1005 for
/// none.
fn serve_frames(
    shared: &Shared,
    socket: &mut WebSocket<impl Duplex>,
    manner: &Manner,
) -> Option<u16> {
    loop {
        let frame = match socket.read() {
            Ok(frame) => frame,
            Err(tungstenite::Error::Capacity(_)) => {
                let _ = socket
                    .close(Some(CloseFrame { code: CloseCode::Size, reason: "too long".into() }));
                return None;
            }
            Err(_) => return None,
        };
        let text = match &frame {
            Message::Text(text) => text.as_str(),
            Message::Close(close) => {
                shared.closed.fetch_add(1, Ordering::SeqCst);
                return Some(close.as_ref().map_or(1005, |close| u16::from(close.code)));
            }
            _ => continue,
        };
        shared.wait_while_hanging();
        if shared.is_closed.load(Ordering::SeqCst) {
            return None;
        }
        let message: Value = serde_json::from_str(text).expect("the bridge sends JSON");
        let said = shared.answers(&message);
        if message["method"] == "tools/call" && shared.cuts.swap(false, Ordering::SeqCst) {
            // A frame of 99 bytes, of which a few come.
            let _ = socket.get_mut().write_all(b"\x81\x63{\"jsonrpc\":\"2.0\",\"id");
            socket.get_ref().ending().end();
            return None;
        }
        let sent = match manner.answers_notifications && message.get("id").is_none() {
            true => say_nothing(socket),
            false => said.iter().try_for_each(|said| match manner.sends_bytes {
                _ if manner.fragment.is_some() => {
                    send_pieces(socket, &said.to_string(), manner.fragment.unwrap_or(1))
                }
                true => socket.send(Message::Binary(said.to_string().into_bytes().into())),
                false => socket.send(Message::text(said.to_string())),
            }),
        };
        if sent.is_err() || shared.is_closed.load(Ordering::SeqCst) {
            return None;
        }
    }
}

fn send_pieces(
    socket: &mut WebSocket<impl Duplex>,
    text: &str,
    length: usize,
) -> tungstenite::Result<()> {
    let pieces: Vec<_> = text.as_bytes().chunks(length).collect();
    for (place, piece) in pieces.iter().enumerate() {
        let data = if place == 0 { Data::Text } else { Data::Continue };
        let is_last = place + 1 == pieces.len();
        let frame = Frame::message(piece.to_vec(), OpCode::Data(data), is_last);
        socket.send(Message::Frame(frame))?;
    }
    Ok(())
}

/// What applications send that answer notifications.
fn say_nothing(socket: &mut WebSocket<impl Duplex>) -> tungstenite::Result<()> {
    socket.send(Message::text(""))?;
    socket.send(Message::text("\"\""))?;
    socket.send(Message::text("{\"jsonrpc\":\"2.0\",\"id\":null}"))
}

fn serve_lines(shared: &Shared, stream: impl Duplex) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|length| length > 0) {
        let message: Value = serde_json::from_str(&line).expect("the bridge sends JSON");
        for said in shared.answers(&message) {
            let answer = format!("{said}\n");
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        line.clear();
    }
}

impl Shared {
    fn new(manner: Manner, deeds: &Deeds) -> Self {
        Self {
            manner: Mutex::new(manner),
            deeds: deeds.clone(),
            is_closed: AtomicBool::new(false),
            connections: Mutex::default(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            sent_away: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            heard: Mutex::default(),
            hangs: (Mutex::default(), Condvar::new()),
            cuts: AtomicBool::new(false),
            shown: Mutex::default(),
        }
    }

    fn drop_connections(&self) {
        let connections =
            std::mem::take(&mut *self.connections.lock().expect("no thread panics with it"));
        connections.iter().for_each(|connection| connection.end());
    }

    fn wait_while_hanging(&self) {
        let (hangs, woken) = &self.hangs;
        let hangs = hangs.lock().expect("no thread panics with it");
        drop(woken.wait_while(hangs, |hangs| *hangs).expect("no thread panics with it"));
    }

    fn evict_connections(&self) {
        let connections =
            std::mem::take(&mut *self.connections.lock().expect("no thread panics with it"));
        connections.iter().for_each(|connection| connection.evict());
    }
}

/// A place for a Unix socket in this folder.
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("app.sock")
}

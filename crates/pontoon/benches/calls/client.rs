//! The clients: as little work as can be, so that what is measured is the other side.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::Duration;

use crate::bridge::Bridge;
use crate::process::Running;

/// The revision that everybody speaks here.
const REVISION: &str = "2025-11-25";

/// An `initialize` request.
pub(crate) fn initialize() -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\
         \"{REVISION}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"bench\",\"version\":\"1\"}}}}}}"
    )
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A call of a tool.
pub(crate) fn tool_call(tool: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\
         \"arguments\":{arguments}}}}}"
    )
}

/// Something that can be called again and again.
pub(crate) trait Caller: Send {
    /// Calls once, and gives the length of the answer.
    fn call(&mut self) -> usize;
}

/// A connection that is kept.
#[derive(Debug)]
pub(crate) struct Http {
    address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The id the bridge gave, once a session is open.
    session: Option<String>,
}

impl Http {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
        Self { address, stream, buffer: vec![0; 64 * 1024], session: None }
    }

    /// Connects to a bridge and opens a session there.
    pub(crate) fn open(bridge: &Bridge) -> Self {
        let mut http = Self::connect(bridge.address());
        http.open_session(bridge);
        http
    }

    /// Opens a session, also a second one on the same connection.
    pub(crate) fn open_session(&mut self, bridge: &Bridge) {
        self.session = None;
        let request = self.post(&bridge.path(), &initialize());
        let (head, _) = self.exchange(&request);
        let head = String::from_utf8_lossy(&self.buffer[..head]);
        let id = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
        });
        self.session = Some(id.expect("the bridge opens a session").to_owned());
        let request = self.post(&bridge.path(), INITIALIZED);
        self.exchange(&request);
    }

    /// The bytes of a POST.
    pub(crate) fn post(&self, path: &str, body: &str) -> Vec<u8> {
        let session = self.session.as_ref().map(|id| format!("Mcp-Session-Id: {id}\r\n"));
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: \
             application/json, text/event-stream\r\nMcp-Protocol-Version: {REVISION}\r\n{}\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            session.unwrap_or_default(),
            body.len(),
        )
        .into_bytes()
    }

    /// The body at `path`.
    pub(crate) fn get(&mut self, path: &str) -> Vec<u8> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        let (head, length) = self.exchange(request.as_bytes());
        self.buffer[head..head + length].to_vec()
    }

    /// Opens the session's own stream, and leaves it open.
    pub(crate) fn listen(&mut self, bridge: &Bridge) {
        let id = self.session.as_deref().expect("a session is open");
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {id}\r\n\r\n",
            bridge.path(),
            self.address
        );
        self.stream.write_all(request.as_bytes()).expect("a connection");
        let read = self.stream.read(&mut self.buffer).expect("a connection");
        assert!(self.buffer[..read].starts_with(b"HTTP/1.1 200"), "the stream was refused");
    }

    /// Sends a request and reads its response into the buffer: where the body begins, and its length.
    fn exchange(&mut self, request: &[u8]) -> (usize, usize) {
        self.stream.write_all(request).expect("a connection");
        let mut filled = 0;
        let head = loop {
            let read = self.stream.read(&mut self.buffer[filled..]).expect("a response in time");
            assert!(read > 0, "the connection was closed");
            filled += read;
            if let Some(end) = find(&self.buffer[..filled], b"\r\n\r\n") {
                break end + 4;
            }
        };
        let length = self.content_length(head);
        if self.buffer.len() < head + length {
            self.buffer.resize(head + length, 0);
        }
        self.stream.read_exact(&mut self.buffer[filled..head + length]).expect("a whole body");
        (head, length)
    }

    fn content_length(&self, head: usize) -> usize {
        let head = &self.buffer[..head];
        let is_good = head.starts_with(b"HTTP/1.1 20");
        assert!(is_good, "{}", String::from_utf8_lossy(head));
        let at = find(head, b"content-length: ");
        let digits = at.map_or(&[][..], |at| &head[at + b"content-length: ".len()..]);
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Calls over HTTP.
#[derive(Debug)]
pub(crate) struct HttpCaller {
    http: Http,
    request: Vec<u8>,
}

impl HttpCaller {
    /// Posts `body` to `path` with each call.
    pub(crate) fn new(http: Http, path: &str, body: &str) -> Self {
        Self { request: http.post(path, body), http }
    }

    /// Calls once, and gives the answer.
    pub(crate) fn answer(&mut self) -> String {
        let (head, length) = self.http.exchange(&self.request);
        String::from_utf8_lossy(&self.http.buffer[head..head + length]).into_owned()
    }
}

impl Caller for HttpCaller {
    fn call(&mut self) -> usize {
        self.http.exchange(&self.request).1
    }
}

/// Calls a server directly over its pipes.
#[derive(Debug)]
pub(crate) struct PipeCaller {
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    request: String,
    pub(crate) running: Running,
}

impl PipeCaller {
    /// Starts a server and shakes hands.
    pub(crate) fn start(command: &mut Command, body: &str) -> Self {
        let mut running = Running::start(command);
        let input = running.0.stdin.take();
        let output = running.0.stdout.take().expect("piped");
        let mut caller = Self {
            input,
            output: BufReader::with_capacity(64 * 1024, output),
            line: Vec::new(),
            request: format!("{body}\n"),
            running,
        };
        caller.write(&format!("{}\n", initialize()));
        caller.read();
        caller.write(&format!("{INITIALIZED}\n"));
        caller
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open until the end");
        input.write_all(line.as_bytes()).expect("the server reads");
    }

    fn read(&mut self) -> usize {
        self.line.clear();
        self.output.read_until(b'\n', &mut self.line).expect("the server answers");
        assert!(self.line.starts_with(b"{"), "not an answer");
        self.line.len() - 1
    }

    /// Closes the input and waits until the server has ended.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        self.running.0.wait().expect("a child of ours");
    }
}

impl Caller for PipeCaller {
    fn call(&mut self) -> usize {
        let input = self.input.as_mut().expect("open until the end");
        input.write_all(self.request.as_bytes()).expect("the server reads");
        self.read()
    }
}

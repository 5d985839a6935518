//! The clients: as little work as can be, so that what is measured is the other side.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{ChildStdin, ChildStdout, Command};
use std::time::{Duration, Instant};

use crate::process::Running;

/// The revisions that clients speak here.
const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// An `initialize` request.
pub(crate) fn initialize() -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\
         \"{LEGACY}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"bench\",\"version\":\"1\"}}}}}}"
    )
}

/// What a legacy client says then.
pub(crate) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A call of a tool.
pub(crate) fn tool_call(tool: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\
         \"arguments\":{arguments}}}}}"
    )
}

/// The same call by a client of the modern era, which says with each request who it is.
fn modern_tool_call(tool: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{{\"_meta\":{{\
         \"io.modelcontextprotocol/protocolVersion\":\"{MODERN}\",\
         \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"bench\",\"version\":\"1\"}},\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}}},\
         \"name\":\"{tool}\",\"arguments\":{arguments}}}}}"
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
    used: Instant,
}

/// How long a connection may be left alone before another takes its place: some servers close theirs
/// after five seconds.
const LEFT_ALONE: Duration = Duration::from_secs(2);

impl Http {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the other side listens");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
        let (buffer, used) = (vec![0; 64 * 1024], Instant::now());
        Self { address, stream, buffer, session: None, used }
    }

    /// Connects and opens a session at `path`.
    pub(crate) fn open(address: SocketAddr, path: &str) -> Self {
        let mut http = Self::connect(address);
        http.open_session(path);
        http
    }

    /// Opens a session, also a second one on the same connection. A bridge may go without.
    pub(crate) fn open_session(&mut self, path: &str) {
        self.session = None;
        let request = self.post(path, &initialize());
        let (head, _) = self.exchange(&request);
        self.session = self.header(head, "mcp-session-id");
        let request = self.post(path, INITIALIZED);
        self.exchange(&request);
    }

    /// The bytes of a POST of the legacy era.
    pub(crate) fn post(&self, path: &str, body: &str) -> Vec<u8> {
        let session = self.session.as_ref().map(|id| format!("Mcp-Session-Id: {id}\r\n"));
        let headers = format!("Mcp-Protocol-Version: {LEGACY}\r\n{}", session.unwrap_or_default());
        self.post_with(path, &headers, body)
    }

    fn post_with(&self, path: &str, headers: &str, body: &str) -> Vec<u8> {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: \
             application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
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
    pub(crate) fn listen(&mut self, path: &str) {
        let id = self.session.as_deref().expect("a session is open");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {id}\r\n\r\n",
            self.address
        );
        self.stream.write_all(request.as_bytes()).expect("a connection");
        let read = self.stream.read(&mut self.buffer).expect("a connection");
        assert!(self.buffer[..read].starts_with(b"HTTP/1.1 200"), "the stream was refused");
    }

    /// Sends a request and reads its response into the buffer: where the body begins, and its length.
    fn exchange(&mut self, request: &[u8]) -> (usize, usize) {
        if self.used.elapsed() > LEFT_ALONE {
            self.stream = Self::connect(self.address).stream;
        }
        self.stream.write_all(request).expect("a connection");
        let mut filled = 0;
        let head = loop {
            filled = self.read_to(filled, filled + 1);
            if let Some(end) = find(&self.buffer[..filled], b"\r\n\r\n") {
                break end + 4;
            }
        };
        let is_good = self.buffer.starts_with(b"HTTP/1.1 20");
        assert!(is_good, "{}", String::from_utf8_lossy(&self.buffer[..filled]));
        let length = match self.content_length(head) {
            Some(length) => {
                self.read_to(filled, head + length);
                length
            }
            None if self.header(head, "transfer-encoding").is_some() => {
                self.read_chunks(head, filled) - head
            }
            None => 0,
        };
        self.used = Instant::now();
        (head, length)
    }

    /// Reads until the buffer is filled at least to `wanted`, and gives where it is filled to.
    fn read_to(&mut self, mut filled: usize, wanted: usize) -> usize {
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted.next_power_of_two(), 0);
        }
        while filled < wanted {
            let read = self.stream.read(&mut self.buffer[filled..]).expect("a response in time");
            assert!(read > 0, "the connection was closed");
            filled += read;
        }
        filled
    }

    /// Reads a body in chunks that begins at `at`, and gives where it ends. The sizes stay in between.
    fn read_chunks(&mut self, mut at: usize, mut filled: usize) -> usize {
        loop {
            let Some(line) = find(&self.buffer[at..filled], b"\r\n") else {
                filled = self.read_to(filled, filled + 1);
                continue;
            };
            let size = String::from_utf8_lossy(&self.buffer[at..at + line]);
            let size = usize::from_str_radix(size.trim(), 16).expect("the size of a chunk");
            at += line + 2 + size + 2;
            filled = self.read_to(filled, at);
            if size == 0 {
                return at;
            }
        }
    }

    /// Without making a text of it: every answer is looked at.
    fn content_length(&self, head: usize) -> Option<usize> {
        let head = &self.buffer[..head];
        let name = [&b"content-length: "[..], b"Content-Length: "];
        let at = name.iter().find_map(|name| Some(find(head, name)? + name.len()))?;
        let digits = head[at..].iter().take_while(|byte| byte.is_ascii_digit());
        Some(digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0')))
    }

    fn header(&self, head: usize, wanted: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.buffer[..head]);
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case(wanted).then(|| value.to_owned())
        })
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

    /// Calls a tool as a client of the modern era.
    pub(crate) fn modern(address: SocketAddr, path: &str, tool: &str, arguments: &str) -> Self {
        let http = Http::connect(address);
        let headers = format!(
            "Mcp-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        );
        let request = http.post_with(path, &headers, &modern_tool_call(tool, arguments));
        Self { http, request }
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

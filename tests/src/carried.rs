//! A server for pipes, reached over a WebSocket: each of its lines is a frame, and each frame is one of its lines.
//!
//! It is started anew for each connection, and ends with it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::HeaderValue;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

/// The server, for as long as it is wanted.
#[derive(Debug)]
pub struct CarriedServer {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    args: Vec<String>,
    open: Mutex<Open>,
}

/// The connections, each with its end.
#[derive(Debug, Default)]
struct Open {
    streams: Vec<TcpStream>,
    serving: Vec<JoinHandle<()>>,
    is_closed: bool,
}

impl CarriedServer {
    /// One that starts this program for each connection.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start(program: &Path, args: &[String]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (program, args) = (program.to_owned(), args.to_owned());
        let shared = Arc::new(Shared { program, args, open: Mutex::default() });
        let serving = Arc::clone(&shared);
        let listening = thread::spawn(move || listen(&serving, &listener));
        Self { port, shared, listening: Some(listening) }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }
}

impl Drop for CarriedServer {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_closed = true;
        // It waits for a connection, and this is the last one.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        for stream in &open.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let serving = std::mem::take(&mut open.serving);
        drop(open);
        for thread in serving.into_iter().chain(self.listening.take()) {
            let _ = thread.join();
        }
    }
}

fn listen(shared: &Arc<Shared>, listener: &TcpListener) {
    while let Ok((stream, _)) = listener.accept() {
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_closed {
            return;
        }
        open.streams.extend(stream.try_clone());
        let shared = Arc::clone(shared);
        open.serving.push(thread::spawn(move || drop(serve(&shared, stream))));
    }
}

/// Carries what both sides say until one of them ends.
fn serve(shared: &Shared, stream: TcpStream) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_nodelay(true)?;
    let output = Arc::new(Mutex::new(stream.try_clone()?));
    let half = Half { input: stream.try_clone()?, output: Arc::clone(&output) };
    let mut heard = tungstenite::accept_hdr(half, agree).map_err(|why| why.to_string())?;
    let mut child = start(shared)?;
    let (input, said) = (child.stdin.take(), child.stdout.take());
    let half = Half { input: stream.try_clone()?, output };
    let saying = thread::spawn(move || {
        if let Some(said) = said {
            let _ = say(said, WebSocket::from_raw_socket(half, Role::Server, None));
        }
        let _ = stream.shutdown(Shutdown::Both);
    });
    if let Some(mut input) = input {
        while let Ok(message) = heard.read() {
            if let Message::Text(_) | Message::Binary(_) = &message {
                // One that has ended reads nothing more, which its output tells.
                let _ = input.write_all(&message.into_data());
                let _ = input.write_all(b"\n").and_then(|()| input.flush());
            }
        }
    }
    let _ = child.kill();
    child.wait()?;
    let _ = saying.join();
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the application is a program, and ends with its connection"
)]
fn start(shared: &Shared) -> io::Result<Child> {
    let mut command = Command::new(&shared.program);
    command.args(&shared.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn()
}

/// Sends each line as a frame.
fn say(said: ChildStdout, mut socket: WebSocket<Half>) -> Result<(), tungstenite::Error> {
    let mut lines = BufReader::new(said);
    loop {
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return socket.close(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        socket.send(match String::from_utf8(line) {
            Ok(text) => Message::text(text),
            Err(bytes) => Message::binary(bytes.into_bytes()),
        })?;
    }
}

#[expect(clippy::result_large_err, clippy::unnecessary_wraps, reason = "tungstenite wants it so")]
fn agree(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    if request.headers().contains_key("sec-websocket-protocol") {
        let mcp = HeaderValue::from_static("mcp");
        response.headers_mut().insert("sec-websocket-protocol", mcp);
    }
    Ok(response)
}

/// One of two WebSockets on the same connection: the one that reads answers pings, while the other one sends.
struct Half {
    input: TcpStream,
    output: Arc<Mutex<TcpStream>>,
}

impl Read for Half {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

impl Write for Half {
    /// The whole of it, so that no frame of the other stands in the middle.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

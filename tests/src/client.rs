//! Plain clients that speak bytes: HTTP/1.1 with every header and byte in the test's hand.
//!
//! A [`Request`] is only text; nothing is added to it. A [`Connection`] sends it and may be kept
//! for the next one. An [`Exchange`] is an answer that is still coming: it can be read event by
//! event, or dropped in the middle, which closes the connection. The two eras of the protocol are
//! in [`mcp`].

pub mod events;
pub mod mcp;
mod request;
mod response;
mod token;
mod who;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

pub use events::{Event, EventReader};
pub use mcp::{Endpoint, Legacy, Modern, Speaker};
pub use request::{Request, send_bytes};
use response::json;
pub use response::{Head, Response};
pub use token::sign_token;
pub use who::{Client, ERAS, Era};

/// How long a client waits for the next byte before its test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One TCP connection, and what has been read from it ahead.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    ahead: Vec<u8>,
}

impl Connection {
    /// A new connection.
    ///
    /// # Errors
    ///
    /// When nobody listens.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, ahead: Vec::new() })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// When the other side has closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    ///
    /// When the other side has closed.
    pub fn end_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Waits for the head of the next answer; interim answers (1xx) are passed over.
    ///
    /// # Errors
    ///
    /// When the connection ends first or the head is not HTTP.
    pub fn begin(mut self) -> io::Result<Exchange> {
        loop {
            let end = loop {
                if let Some(end) = find(&self.ahead, b"\r\n\r\n") {
                    break end;
                }
                self.read_more()?;
            };
            let head = Head::parse(&self.ahead[..end])?;
            self.ahead.drain(..end + 4);
            if head.status >= 200 {
                let framing = head.framing()?;
                return Ok(Exchange {
                    connection: self,
                    head,
                    framing,
                    events: EventReader::new(),
                });
            }
        }
    }

    /// Nothing has come that was not asked for, and the other side has not closed.
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let quiet = self.stream.set_nonblocking(true).is_ok()
            && matches!(self.stream.peek(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        quiet && self.stream.set_nonblocking(false).is_ok() && self.ahead.is_empty()
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        let read = loop {
            match self.stream.read(&mut piece) {
                // A signal to the test's process is no answer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        match read {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("closed after {:?}", String::from_utf8_lossy(&self.ahead)),
            )),
            length => {
                self.ahead.extend_from_slice(&piece[..length]);
                Ok(())
            }
        }
    }

    /// Up to `most` bytes, at least one.
    fn take(&mut self, most: u64) -> io::Result<Vec<u8>> {
        if self.ahead.is_empty() {
            self.read_more()?;
        }
        let length = self.ahead.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(self.ahead.drain(..length).collect())
    }

    fn take_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.ahead, b"\r\n") {
                let line = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
                self.ahead.drain(..end + 2);
                return Ok(line);
            }
            self.read_more()?;
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// How much of the body is still to come.
#[derive(Debug)]
pub(crate) enum Framing {
    Length(u64),
    /// So much of this chunk; the next one follows it.
    Chunk(u64),
    UntilClosed,
    Over,
}

/// An answer that is still coming. Dropping it closes the connection.
#[derive(Debug)]
pub struct Exchange {
    connection: Connection,
    /// Status and headers.
    pub head: Head,
    framing: Framing,
    events: EventReader,
}

impl Exchange {
    /// The next piece of the body, or `None` at its proper end.
    ///
    /// # Errors
    ///
    /// When the connection ends inside the body.
    pub fn next_piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.framing {
                Framing::Over => return Ok(None),
                Framing::Length(0) => self.framing = Framing::Over,
                Framing::Length(left) => {
                    let piece = self.connection.take(left)?;
                    self.framing = Framing::Length(left - piece.len() as u64);
                    return Ok(Some(piece));
                }
                Framing::Chunk(0) => self.next_chunk()?,
                Framing::Chunk(left) => {
                    let piece = self.connection.take(left)?;
                    let left = left - piece.len() as u64;
                    if left == 0 {
                        self.connection.take_line()?;
                    }
                    self.framing = Framing::Chunk(left);
                    return Ok(Some(piece));
                }
                Framing::UntilClosed => match self.connection.take(u64::MAX) {
                    Ok(piece) => return Ok(Some(piece)),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.framing = Framing::Over;
                    }
                    Err(error) => return Err(error),
                },
            }
        }
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let line = self.connection.take_line()?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("chunk size {line:?}"))
        })?;
        self.framing = Framing::Chunk(size);
        if size == 0 {
            while !self.connection.take_line()?.is_empty() {}
            self.framing = Framing::Over;
        }
        Ok(())
    }

    /// The next event of a stream, or `None` at its end. Comments are counted, not given.
    ///
    /// # Errors
    ///
    /// When the connection ends inside the body.
    pub fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.events.next_event() {
                return Ok(Some(event));
            }
            match self.next_piece()? {
                Some(piece) => self.events.push(&piece),
                None => return Ok(None),
            }
        }
    }

    /// The next message: the next event that has data, or the whole of a plain body.
    ///
    /// # Errors
    ///
    /// When the connection ends inside the body or what came is not JSON.
    pub fn next_message(&mut self) -> io::Result<Option<Value>> {
        if !self.head.is_stream() {
            let body = self.rest()?;
            return if body.is_empty() { Ok(None) } else { Ok(Some(json(&body)?)) };
        }
        while let Some(event) = self.next_event()? {
            if !event.data.is_empty() {
                return json(event.data.as_bytes()).map(Some);
            }
        }
        Ok(None)
    }

    /// The number of comment lines so far: the keep-alive of a stream.
    pub fn comments(&self) -> usize {
        self.events.comments()
    }

    /// Reads to the end; gives the connection back when it may be used again.
    ///
    /// # Errors
    ///
    /// When the connection ends inside the body.
    pub fn finish(mut self) -> io::Result<(Response, Option<Connection>)> {
        let until_closed = matches!(self.framing, Framing::UntilClosed);
        let body = self.rest()?;
        let closes =
            self.head.header("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        let kept = (!until_closed && !closes).then_some(self.connection);
        Ok((Response { head: self.head, body }, kept))
    }

    fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.next_piece()? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Plays a server that gives `answer` to whatever it hears first, and closes.
    fn check<T>(answer: &'static str, client: impl FnOnce(SocketAddr) -> T) -> (String, T) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 4096];
            let length = stream.read(&mut heard).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&heard[..length]).into_owned()
        });
        let out = client(address);
        (server.join().unwrap(), out)
    }

    #[test]
    fn a_request_goes_out_as_written() {
        let request = Request::post("/mcp/x", "{}").header("X-Twice", "1").header("X-Twice", "2");
        let (heard, _) = check("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", |address| {
            request.send(address).unwrap()
        });
        assert_eq!(
            heard,
            "POST /mcp/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: 2\r\n\
             X-Twice: 1\r\nX-Twice: 2\r\n\r\n{}"
        );
    }

    #[test]
    fn a_chunked_stream_gives_its_events() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                      transfer-encoding: chunked\r\n\r\n\
                      9\r\nid: 1\ndat\r\nb\r\na: {\"a\":1}\n\r\n1\r\n\n\r\n0\r\n\r\n";
        let (_, (event, end)) = check(answer, |address| {
            let mut exchange = Request::post("/", "{}").begin(address).unwrap();
            (exchange.next_event().unwrap().unwrap(), exchange.next_event().unwrap())
        });
        assert_eq!((event.id.as_deref(), event.data.as_str()), (Some("1"), "{\"a\":1}"));
        assert!(end.is_none());
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        let (_, out) = check("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}", |address| {
            Request::post("/", "{}").send(address).map(|response| response.status())
        });
        assert_eq!(out.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_kept_connection_notices_what_was_not_asked_for() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n";
        let (_, quiet) = check(answer, |address| {
            let exchange = Request::post("/", "{}").begin(address).unwrap();
            exchange.finish().unwrap().1.unwrap().is_quiet()
        });
        assert!(!quiet);
    }

    #[test]
    fn interim_answers_are_passed_over() {
        let answer =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too Large\r\nconnection: close\r\n\r\nno";
        let (_, response) =
            check(answer, |address| Request::post("/", "{}").send(address).unwrap());
        assert_eq!((response.status(), response.text().as_str()), (413, "no"));
    }
}

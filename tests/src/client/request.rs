//! Requests: text that goes over the wire as the test wrote it.

use std::io;
use std::net::SocketAddr;

use super::{Connection, Exchange, Response};

/// A request as it goes over the wire. Only `Content-Length` is added, and only for a body that
/// is given with [`Request::body`].
#[derive(Debug, Clone)]
pub struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request with a `Host` header and no other.
    pub fn new(method: &str, target: &str) -> Self {
        let line = format!("{method} {target} HTTP/1.1");
        Self { line, headers: Vec::new(), body: Vec::new() }.header("Host", "127.0.0.1")
    }

    /// A POST of JSON that accepts both content types of the protocol.
    pub fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", target)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body)
    }

    /// The same with one more header; one of the same name stays.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without any header of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// The same with this header in place of all of its name.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    /// The same with this body and its length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        let length = self.body.len().to_string();
        self.with("Content-Length", &length)
    }

    /// What goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.line).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends it on a connection of its own and reads the whole answer.
    ///
    /// # Errors
    ///
    /// When the connection ends before the answer does, or [`PATIENCE`](super::PATIENCE) does.
    pub fn send(&self, address: SocketAddr) -> io::Result<Response> {
        send_bytes(address, &self.bytes())
    }

    /// Sends it on a connection of its own and reads the head of the answer.
    ///
    /// # Errors
    ///
    /// As [`Request::send`].
    pub fn begin(&self, address: SocketAddr) -> io::Result<Exchange> {
        let mut connection = Connection::open(address)?;
        connection.send(&self.bytes())?;
        connection.begin()
    }
}

/// Sends these bytes as they are and reads the whole answer.
///
/// # Errors
///
/// As [`Request::send`].
pub fn send_bytes(address: SocketAddr, bytes: &[u8]) -> io::Result<Response> {
    let mut connection = Connection::open(address)?;
    // A server may answer and close before it has read everything; its answer still counts.
    let sent = connection.send(bytes);
    match (connection.begin(), sent) {
        (Ok(exchange), _) => Ok(exchange.finish()?.0),
        (Err(error), Ok(())) => Err(error),
        (Err(_), Err(error)) => Err(error),
    }
}

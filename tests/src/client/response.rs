//! Answers: status, headers, and the messages in a body.

use std::io;

use serde_json::Value;

use super::{EventReader, Framing};

/// Status and headers of an answer.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let not_http = || io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {text:?}"));
        let mut lines = text.split("\r\n");
        let mut words = lines.next().ok_or_else(not_http)?.split(' ');
        if words.next() != Some("HTTP/1.1") {
            return Err(not_http());
        }
        let status = words.next().and_then(|word| word.parse().ok()).ok_or_else(not_http)?;
        let headers = lines
            .map(|line| {
                let (name, value) = line.split_once(':').ok_or_else(not_http)?;
                Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { status, headers })
    }

    /// The value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|it| it.starts_with("text/event-stream"))
    }

    pub(super) fn framing(&self) -> io::Result<Framing> {
        if matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        if self.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
            return Ok(Framing::Chunk(0));
        }
        match self.header("content-length") {
            None => Ok(Framing::UntilClosed),
            Some(length) => length.parse().map(Framing::Length).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, format!("length {length:?}"))
            }),
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status and headers.
    pub head: Head,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Every message of the body, be it plain JSON or a stream of events.
    ///
    /// # Errors
    ///
    /// When one of them is not JSON.
    pub fn messages(&self) -> io::Result<Vec<Value>> {
        if self.body.is_empty() {
            return Ok(Vec::new());
        }
        if !self.head.is_stream() {
            return Ok(vec![json(&self.body)?]);
        }
        let mut events = EventReader::new();
        events.push(&self.body);
        std::iter::from_fn(|| events.next_event())
            .filter(|event| !event.data.is_empty())
            .map(|event| json(event.data.as_bytes()))
            .collect()
    }

    /// The last message, which is the answer; an empty body is `null`.
    ///
    /// # Panics
    ///
    /// When the body holds something else than messages.
    pub fn answer(&self) -> Value {
        let messages = self.messages().unwrap_or_else(|error| {
            panic!(
                "status {} with a body that is not JSON ({error}): {}",
                self.status(),
                self.text()
            )
        });
        messages.into_iter().next_back().unwrap_or(Value::Null)
    }

    /// The code of the JSON-RPC error in it, if it is one.
    pub fn error_code(&self) -> Option<i64> {
        self.answer().pointer("/error/code")?.as_i64()
    }

    /// The message of the JSON-RPC error in it, or nothing.
    pub fn error_text(&self) -> String {
        let text =
            self.answer().pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
        text.unwrap_or_default()
    }

    /// The text of the first content block of a tool's result, or nothing.
    pub fn tool_text(&self) -> Option<String> {
        Some(self.answer().pointer("/result/content/0/text")?.as_str()?.to_owned())
    }
}

pub(super) fn json(bytes: &[u8]) -> io::Result<Value> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(bytes);
        io::Error::new(io::ErrorKind::InvalidData, format!("{error} in {text:?}"))
    })
}

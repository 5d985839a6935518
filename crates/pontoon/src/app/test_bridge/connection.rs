//! A connection of a test: HTTP/1.1 in memory, with every byte in the test's hand.

use std::time::Duration;

use pontoon_wire::error::code;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The longest that a test waits, by a clock that is stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// A connection to the bridge. Dropped, it is closed.
pub(crate) struct TestConnection {
    stream: DuplexStream,
    /// What was read ahead.
    ahead: Vec<u8>,
}

impl TestConnection {
    pub(super) fn new(stream: DuplexStream) -> Self {
        Self { stream, ahead: Vec::new() }
    }

    /// Sends a request, and gives its response as soon as that has begun.
    pub(crate) async fn send(mut self, request: &str) -> TestResponse {
        self.write(request).await;
        self.begin().await
    }

    /// Sends this text, and waits for nothing.
    pub(crate) async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next response, as soon as it has begun.
    pub(crate) async fn begin(mut self) -> TestResponse {
        let end = loop {
            if let Some(end) = find(&self.ahead, b"\r\n\r\n") {
                break end;
            }
            assert!(self.read().await, "closed after {:?}", String::from_utf8_lossy(&self.ahead));
        };
        let head = String::from_utf8(self.ahead.drain(..end + 4).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let mut response =
            TestResponse { status, headers: headers.collect(), connection: self, left: 0 };
        response.left = match response.header("content-length") {
            Some(length) => length.parse().unwrap(),
            None => 0,
        };
        response
    }

    /// Whether more came.
    async fn read(&mut self) -> bool {
        self.stream.read_buf(&mut self.ahead).await.unwrap_or(0) > 0
    }

    /// Waits until the bridge has closed it. Nothing may come before.
    pub(crate) async fn until_closed(mut self) {
        assert!(!self.read().await, "{:?}", String::from_utf8_lossy(&self.ahead));
    }
}

/// A response whose body may still be coming. Dropped, its connection is closed.
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    connection: TestConnection,
    /// The bytes of the body that were not read, where their number is known.
    left: usize,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The connection, now for something else than HTTP, and what was read ahead of it.
    pub(super) fn upgraded(self) -> (DuplexStream, Vec<u8>) {
        (self.connection.stream, self.connection.ahead)
    }

    /// The next event or comment of a stream, with its fields; `None` at the end.
    pub(crate) async fn event(&mut self) -> Option<String> {
        assert!(self.is_stream(), "{:?}", self.headers);
        let mut event = String::new();
        // The bridge writes an event in pieces, and ends each with an empty line.
        while !event.ends_with("\n\n") {
            event += &self.chunk().await?;
        }
        Some(event)
    }

    /// The data of the next event that has any. A stream that only says that it lives fails its test after a day.
    pub(crate) async fn data(&mut self) -> Option<String> {
        let next = tokio::time::timeout(LONGEST_WAIT, self.next_data()).await;
        next.expect("nothing but comments for a day")
    }

    async fn next_data(&mut self) -> Option<String> {
        loop {
            let event = self.event().await?;
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            if let Some(data) = data.filter(|data| !data.is_empty()) {
                return Some(data.to_owned());
            }
        }
    }

    /// The next piece of a body without a length; `None` at its end.
    async fn chunk(&mut self) -> Option<String> {
        let connection = &mut self.connection;
        let (start, length) = loop {
            if let Some(end) = find(&connection.ahead, b"\r\n") {
                let length = std::str::from_utf8(&connection.ahead[..end]).unwrap();
                let length = usize::from_str_radix(length, 16).unwrap();
                if connection.ahead.len() >= end + 2 + length + 2 {
                    break (end + 2, length);
                }
            }
            if !connection.read().await {
                return None;
            }
        };
        let piece = connection.ahead.drain(..start + length + 2).skip(start).take(length);
        let piece = String::from_utf8(piece.collect()).unwrap();
        (length > 0).then_some(piece)
    }

    /// The whole body of a response that is no stream.
    pub(crate) async fn body(mut self) -> String {
        assert!(!self.is_stream(), "{:?}", self.headers);
        while self.connection.ahead.len() < self.left {
            assert!(self.connection.read().await, "cut off");
        }
        String::from_utf8(self.connection.ahead[..self.left].to_vec()).unwrap()
    }

    /// The connection, for the next request, once the body was read.
    pub(crate) async fn next(mut self) -> TestConnection {
        assert!(!self.is_stream(), "{:?}", self.headers);
        while self.connection.ahead.len() < self.left {
            assert!(self.connection.read().await, "cut off");
        }
        self.connection.ahead.drain(..self.left);
        self.connection
    }

    /// The answer, whether it comes alone or as the last of events.
    pub(crate) async fn answer(mut self) -> String {
        if !self.is_stream() {
            return self.body().await;
        }
        let mut last = None;
        while let Some(data) = self.data().await {
            last = Some(data);
        }
        last.expect("an answer")
    }

    /// All that comes, alone or as events, in one text.
    pub(crate) async fn all(mut self) -> String {
        if !self.is_stream() {
            return self.body().await;
        }
        let mut all = String::new();
        while let Some(data) = self.data().await {
            all += &data;
        }
        all
    }

    /// The status that the response has for the client, and why. In the legacy era both are in the body.
    pub(crate) async fn refusal(self) -> (u16, String) {
        let status = self.status;
        let body = self.answer().await;
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or_else(|| panic!("no error: {body}"));
        let told = error["data"]["httpStatus"].as_u64().map(|told| u16::try_from(told).unwrap());
        let code = match told {
            Some(429) => code::BUSY,
            Some(502) => code::SERVER_FAILED,
            Some(504) => code::TIMED_OUT,
            _ => error["code"].as_i64().unwrap(),
        };
        assert_eq!(error["code"], code, "{body}");
        if status != 200 {
            assert!(told.is_none_or(|told| told == status), "{status}: {body}");
        }
        (told.unwrap_or(status), message.to_owned())
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

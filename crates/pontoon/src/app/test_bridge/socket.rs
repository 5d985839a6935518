//! A WebSocket of a test: that of a client that does as it is told, or its bytes.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::TestBridge;
use super::connection::TestResponse;
use super::request::{bare, initialize};

/// What a WebSocket client says to begin.
const HELLO: [(&str, &str); 4] = [
    ("connection", "keep-alive, Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// A WebSocket to the server `demo`. Dropped, it is cut off.
pub(crate) struct TestSocket {
    stream: WebSocketStream<DuplexStream>,
}

impl TestSocket {
    /// The response to a request for one, with these headers more.
    pub(crate) async fn ask(bridge: &TestBridge, headers: &[(&str, &str)]) -> TestResponse {
        let headers = [&HELLO[..], headers].concat();
        bridge.connect().send(&bare("GET", "/ws/demo", &headers)).await
    }

    /// One on which nothing was said.
    pub(crate) async fn connect(bridge: &TestBridge) -> Self {
        let response = Self::ask(bridge, &[("sec-websocket-protocol", "mcp")]).await;
        assert_eq!(response.status, 101);
        assert_eq!(response.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(response.header("sec-websocket-protocol"), Some("mcp"));
        let (stream, ahead) = response.upgraded();
        let stream = WebSocketStream::from_partially_read(stream, ahead, Role::Client, None).await;
        Self { stream }
    }

    /// One with a session of a client that can be asked.
    pub(crate) async fn open(bridge: &TestBridge) -> Self {
        let mut socket = Self::connect(bridge).await;
        socket.say(&initialize("2025-11-25", "{\"elicitation\":{}}")).await;
        let hello = socket.next().await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
        socket
    }

    /// Sends this text in a frame.
    pub(crate) async fn say(&mut self, text: &str) {
        self.send(Frame::text(text)).await;
    }

    /// Sends this frame.
    pub(crate) async fn send(&mut self, frame: Frame) {
        self.stream.send(frame).await.unwrap();
    }

    /// Sends these bytes, whatever they are.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).await.unwrap();
    }

    /// Takes some bytes as they come, and says how many there were.
    pub(crate) async fn read(&mut self) -> usize {
        self.stream.get_mut().read(&mut [0; 1024]).await.unwrap()
    }

    /// The next frame; pings are answered. `None` when it was cut off.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        self.stream.next().await?.ok()
    }

    /// The next message. Pings are answered meanwhile.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match self.frame().await {
                Some(Frame::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Some(Frame::Ping(_) | Frame::Pong(_)) => {}
                other => panic!("no message: {other:?}"),
            }
        }
    }

    /// The code and the reason with which it was closed; no message may come before.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match self.frame().await {
                Some(Frame::Close(Some(close))) => {
                    return (close.code.into(), close.reason.to_string());
                }
                Some(Frame::Ping(_) | Frame::Pong(_)) => {}
                other => panic!("not closed: {other:?}"),
            }
        }
    }
}

/// A frame of a client as bytes: its first byte, and its content under a mask that changes nothing.
pub(crate) fn masked(first: u8, content: &[u8]) -> Bytes {
    let mut frame = vec![first, 0x80 | 127];
    frame.extend_from_slice(&(content.len() as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(content);
    frame.into()
}

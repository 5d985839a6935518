//! A server of tools over WebSocket and its clients: what works, who is refused, and what goes wrong.

mod entry;
mod faults;
mod silence;
mod use_of_tools;

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, Stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{Announce, AppToken, WebSocketOptions, WebSocketServer};
use crate::{Tool, Toolset};

const TOKEN: &str = "a-token-for-tests-only";

/// Nothing here takes so long unless it hangs.
const SOON: Duration = Duration::from_secs(30);

fn options() -> WebSocketOptions {
    WebSocketOptions {
        token: AppToken::Given(TOKEN.to_owned()),
        origins: vec!["http://allowed.example".to_owned()],
        announce: Announce::Nowhere,
        ..WebSocketOptions::default()
    }
}

fn start(tools: &Toolset) -> WebSocketServer {
    WebSocketServer::start("tested", std::slice::from_ref(tools), options()).unwrap()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

/// One tool that gives back what it gets.
fn echo() -> Toolset {
    Toolset::new().with(Tool::new("echo", |Text { text }, _| async { text })).unwrap()
}

/// A client of a server.
struct Client<S = TcpStream> {
    socket: WebSocketStream<S>,
    /// What the server has answered to the opening.
    head: HeaderMap,
}

impl Client {
    /// Connects as `pontoon connect` does.
    async fn connect(server: &WebSocketServer) -> Self {
        let token = format!("Bearer {TOKEN}");
        let headers = [("Authorization", token.as_str()), ("Sec-WebSocket-Protocol", "mcp")];
        Self::try_connect(server, &headers).await.unwrap_or_else(|status| panic!("HTTP {status}"))
    }

    /// Connects with these headers, or gives the status of the refusal.
    async fn try_connect(
        server: &WebSocketServer,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = server.url().into_client_request().unwrap();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        let config = WebSocketConfig::default().max_frame_size(None).max_message_size(None);
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, response)) => Ok(Self { socket, head: response.headers().clone() }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, message: Value) {
        self.send_frame(Frame::text(message.to_string())).await.unwrap();
    }

    async fn send_frame(&mut self, frame: Frame) -> Result<(), Error> {
        use std::pin::Pin;
        std::future::poll_fn(|context| Pin::new(&mut self.socket).poll_ready(context)).await?;
        Pin::new(&mut self.socket).start_send(frame)?;
        std::future::poll_fn(|context| Pin::new(&mut self.socket).poll_flush(context)).await
    }

    /// The next frame, or how it ended.
    async fn frame(&mut self) -> Result<Frame, Error> {
        use std::pin::Pin;
        let next = std::future::poll_fn(|context| Pin::new(&mut self.socket).poll_next(context));
        let next = tokio::time::timeout(SOON, next).await.expect("the server says something");
        next.unwrap_or(Err(Error::ConnectionClosed))
    }

    /// The next message.
    async fn message(&mut self) -> Value {
        match self.frame().await {
            Ok(Frame::Text(text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("no message: {other:?}"),
        }
    }

    /// The code with which the server closes.
    async fn close_code(&mut self) -> u16 {
        loop {
            match self.frame().await {
                Ok(Frame::Close(close)) => return close.expect("a code").code.into(),
                Ok(_) => {}
                Err(error) => panic!("it broke off: {error}"),
            }
        }
    }

    async fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        let id = id.into();
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let answer = self.message().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn initialize(&mut self) -> Value {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
                            "clientInfo": {"name": "test", "version": "1"}});
        let answer = self.ask(0, "initialize", params).await;
        self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        answer
    }

    async fn begin_call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(
            json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params}),
        )
        .await;
    }

    /// Calls `echo`, which shows that everything works.
    async fn echoes(&mut self, text: &str) {
        self.begin_call("echo", "echo", json!({"text": text})).await;
        let answer = self.message().await;
        assert!(answer["result"]["content"][0]["text"] == text, "{answer}");
    }

    /// A ping is answered.
    async fn is_alive(&mut self) {
        self.send_frame(Frame::Ping(Bytes::from_static(b"there?"))).await.unwrap();
        let pong = self.frame().await;
        assert!(matches!(&pong, Ok(Frame::Pong(it)) if it == "there?"), "{pong:?}");
    }
}

/// What the server answers to these bytes, until it ends the connection or begins a WebSocket.
async fn raw(server: &WebSocketServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = async {
        while !answer.starts_with(b"HTTP/1.1 101") {
            // What is cut off with something unread ends with an error.
            if !stream.read_buf(&mut answer).await.is_ok_and(|count| count > 0) {
                break;
            }
        }
    };
    tokio::time::timeout(SOON, read).await.expect("it is answered");
    String::from_utf8(answer).unwrap()
}

/// The request for a WebSocket with these lines in its head.
fn request(lines: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\n{lines}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

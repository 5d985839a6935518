//! The opening of a connection: a request is read, looked at, and answered, with a WebSocket or with the reason why not.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::MAX_MESSAGE_BYTES;
use super::entrance::{Entrance, Refusal, SUB_PROTOCOL};

/// How long an opening may take.
pub(super) const OPENING: Duration = Duration::from_secs(5);

/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// How long the other side may still send after the last word of ours, so that it hears that.
const LINGER: Duration = Duration::from_secs(1);

/// Why no connection came to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpeningError {
    #[error("{}", .0.words)]
    Refused(Refusal),
    #[error("the request did not come whole")]
    Io(#[from] io::Error),
}

/// Opens a connection, if the request may come in and a place is free.
pub(super) async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    entrance: &Entrance,
    places: &std::sync::Arc<Semaphore>,
) -> Result<(WebSocketStream<S>, OwnedSemaphorePermit), OpeningError> {
    let opened = match read_head(&mut stream).await? {
        Ok((request, rest)) => admit(&request, entrance, places).map(|it| (it, rest)),
        Err(refusal) => Err(refusal),
    };
    match opened {
        Ok(((response, place), rest)) => {
            stream.write_all(&response).await?;
            stream.flush().await?;
            let role = Role::Server;
            let socket =
                WebSocketStream::from_partially_read(stream, rest.into(), role, Some(config()));
            Ok((socket.await, place))
        }
        Err(refusal) => {
            stream.write_all(refusal.response().as_bytes()).await?;
            linger(&mut stream).await;
            Err(OpeningError::Refused(refusal))
        }
    }
}

/// Ends our side, and reads on for a moment: what was not read at the end would take our last words with it.
pub(super) async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let _ = tokio::time::timeout(LINGER, async {
        stream.shutdown().await?;
        let mut rest = vec![0; 16 * 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

/// The request, and what came after it.
async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Result<(Request, BytesMut), Refusal>> {
    let mut head = BytesMut::with_capacity(1024);
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match Request::try_parse(&head) {
            Ok(Some((size, request))) => {
                let rest = head.split_off(size);
                return Ok(Ok((request, rest)));
            }
            Ok(None) if head.len() < MAX_HEAD_BYTES => {}
            Ok(None) => return Ok(Err(Refusal::new(431, "the request has more than 16 KiB"))),
            Err(_) => {
                return Ok(Err(Refusal::new(
                    400,
                    "here is a WebSocket, and that is no request for one",
                )));
            }
        }
    }
}

type Opening = (Vec<u8>, OwnedSemaphorePermit);

fn admit(
    request: &Request,
    entrance: &Entrance,
    places: &std::sync::Arc<Semaphore>,
) -> Result<Opening, Refusal> {
    entrance.check_place(request)?;
    let not_one = |_| {
        Refusal::new(
            426,
            "here is a WebSocket that speaks MCP: connect with an MCP client, such as `pontoon connect`",
        )
    };
    let mut response = create_response(request).map_err(not_one)?;
    entrance.check_token(request)?;
    let full = |_| {
        Refusal::new(
            503,
            "the application has as many clients as it takes: close one, or try again later",
        )
    };
    let place = std::sync::Arc::clone(places).try_acquire_owned().map_err(full)?;
    if Entrance::offers_sub_protocol(request) {
        let ours = HeaderValue::from_static(SUB_PROTOCOL);
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, ours);
    }
    let mut text = Vec::new();
    let failed = |_| Refusal::new(500, "the answer cannot be written");
    write_response(&mut text, &response).map_err(failed)?;
    Ok((text, place))
}

impl Refusal {
    fn new(status: u16, words: &'static str) -> Self {
        let status = StatusCode::from_u16(status).expect("it is written in this file");
        Self { status, words }
    }

    fn response(self) -> String {
        let more = match self.status.as_u16() {
            401 => "WWW-Authenticate: Bearer\r\n",
            426 => "Upgrade: websocket\r\n",
            503 => "Retry-After: 5\r\n",
            _ => "",
        };
        let Self { status, words } = self;
        let length = words.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\n{more}Content-Type: text/plain; charset=utf-8\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{words}\n"
        )
    }
}

fn config() -> WebSocketConfig {
    // Applications and browsers send long messages in one frame as well.
    WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
}

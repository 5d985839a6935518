//! MCP over WebSocket: `GET /ws/{server}`, a message in each frame, in both eras.
//!
//! The request is checked in `upgrade`, the bytes are those of `frames`, and what a message means is in
//! `stream_client`. This file is the one loop over a WebSocket: it hears, answers, asks for signs of life, and says
//! goodbye when the client or the bridge leaves.

mod frames;
pub mod upgrade;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use self::frames::{Frames, Happened};
use self::upgrade::WebSocketOpening;
use super::site::HttpSite;
use super::stream_client::{SessionOpening, StreamClient, StreamPeer};
use crate::back::conversation::websocket::{Remedy, SignsOfLife};
use crate::config::Silence;
use crate::observe::metrics::Limit;

/// A client that has said nothing after this long is let go.
const OPENING: Duration = Duration::from_secs(60);

/// How long a client may be silent: nothing is asked of one that it would be at work on.
const SILENCE: Silence = Silence { busy_grace: Duration::ZERO, ..Silence::USUAL };

/// How long one message may take.
const MESSAGE_TIME: Duration = Duration::from_secs(60);

/// How long a client may take to close in order.
const CLOSING: Duration = Duration::from_secs(2);

/// What a client is told when the bridge stops, and when it has ended the client's session.
const STOPPING: &str = "the bridge is stopping: connect again";
const ENDED: &str = "the session was ended by the bridge: connect again";

/// How a WebSocket ends.
#[derive(Debug)]
enum SocketClosing {
    /// The client has closed it, or is gone.
    Gone,
    /// We close it: nothing is left to say.
    Close(CloseCode, String),
    /// We break it off.
    BreakOff(CloseCode, String),
}

/// Serves one WebSocket until it ends. `early` is what came before it began.
pub async fn serve<S>(opening: WebSocketOpening, stream: S, early: &Bytes, site: &Arc<HttpSite>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let WebSocketOpening { entry, caller, permit, .. } = opening;
    let mut frames =
        Frames::new(stream, early, site.max_body, &site.held, &caller.person.principal);
    let who = StreamPeer::Caller(Box::new(caller));
    let client = Arc::new(StreamClient::new(Arc::clone(&site.sessions), entry, who));
    let leaving = LeavesWith(Arc::clone(&client));
    let closing = talk(&mut frames, &client, site).await;
    drop(leaving);
    tracing::debug!(server = client.server(), ?closing, "WebSocket ended");
    let goodbye = async {
        match &closing {
            SocketClosing::Gone => {}
            SocketClosing::Close(code, words) => frames.close(*code, words).await,
            SocketClosing::BreakOff(code, words) => frames.break_off(*code, words).await,
        }
    };
    drop(tokio::time::timeout(CLOSING, goodbye).await);
    drop(permit);
}

/// What is done for a client ends when this is dropped, however that comes.
struct LeavesWith(Arc<StreamClient>);

impl Drop for LeavesWith {
    fn drop(&mut self) {
        self.0.leave();
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    frames: &mut Frames<S>,
    client: &Arc<StreamClient>,
    site: &HttpSite,
) -> SocketClosing {
    let mut leaving = pin!(site.leaving.cancelled());
    let mut farewell: Option<String> = None;
    let mut retired = pin!(retired(client));
    let mut alarm = pin!(tokio::time::sleep(SILENCE.ping_after));
    let opened = Instant::now();
    let mut signs = SignsOfLife::new(SILENCE, opened);
    let mut has_spoken = false;
    let mut opening: Option<SessionOpening> = None;
    let mut message = None;
    loop {
        if opening.is_none()
            && let Some((text, hold)) = message.take()
        {
            opening = client.take(text, hold);
        }
        // While a session is being opened, one message more is read: pings are answered, and a client that leaves is
        // noticed.
        let is_heard = message.is_none();
        let happened = tokio::select! {
            biased;
            () = async { if let Some(opening) = &mut opening { opening.await } }, if opening.is_some() => {
                opening = None;
                continue;
            }
            happened = std::future::poll_fn(|context| frames.poll(&client.answers, is_heard, context)) => happened,
            () = &mut leaving, if farewell.is_none() => {
                farewell = Some(STOPPING.to_owned());
                client.end();
                continue;
            }
            () = &mut retired, if farewell.is_none() => {
                let server = client.server();
                farewell = Some(format!("the server `{server}` is not served here any more"));
                client.end();
                continue;
            }
            () = &mut alarm => {
                let now = Instant::now();
                if !has_spoken && now >= opened + OPENING {
                    let words = "nothing was said for 60 s: send `initialize`, or a request".to_owned();
                    return SocketClosing::Close(CloseCode::Policy, words);
                }
                if frames.incoming_since().is_some_and(|since| now >= since + MESSAGE_TIME) {
                    let words = "a message took longer than 60 s".to_owned();
                    return SocketClosing::BreakOff(CloseCode::Policy, words);
                }
                let next = match signs.look(now) {
                    Remedy::Later(then) => then,
                    // Where nothing is read, nothing can be heard either: then the network decides.
                    Remedy::Gone(_) if is_heard && client.answers.has_room() => return SocketClosing::Gone,
                    Remedy::Gone(_) => now + SILENCE.ping_after,
                    Remedy::Ask(then) => {
                        frames.ping();
                        then
                    }
                };
                alarm.as_mut().reset(next);
                continue;
            }
        };
        match happened {
            Happened::Message(text, hold) => {
                has_spoken = true;
                signs.heard(Instant::now());
                message = Some((text, hold));
            }
            Happened::Sign { is_pong } => {
                signs.heard(Instant::now());
                signs.answers_pings |= is_pong;
            }
            Happened::AllSaid => {
                let is_leaving = site.leaving.is_cancelled();
                let farewell = farewell.or_else(|| is_leaving.then(|| STOPPING.to_owned()));
                return farewell.map_or_else(
                    || SocketClosing::Close(CloseCode::Error, ENDED.to_owned()),
                    |words| SocketClosing::Close(CloseCode::Away, words),
                );
            }
            Happened::Gone => return SocketClosing::Gone,
            Happened::Fault(code, words) => {
                match code {
                    CloseCode::Size => site.metrics.refused(Limit::Body),
                    CloseCode::Again => site.metrics.refused(Limit::Memory),
                    _ => {}
                }
                return SocketClosing::BreakOff(code, words);
            }
        }
    }
}

/// Returns when the client's server is served no more; one that is replaced goes on.
async fn retired(client: &StreamClient) {
    while let Some(entry) = client.entry() {
        entry.back.stop.cancelled().await;
        // What stops all servers is the bridge, which says so by itself.
        if client.entry().is_some_and(|now| Arc::ptr_eq(&now, &entry)) {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests;

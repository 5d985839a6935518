//! An application that is a task of the test, behind a Unix socket with lines or a WebSocket: whole calls to it run with the
//! clock stopped.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use pontoon_wire::{Message, Revision, Slot};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use super::live_app::LiveApp;
use crate::back::child::in_memory::InMemoryServers;
use crate::back::pair::{Pair, client};
use crate::client::Client;
use crate::config::{AppHeaders, AppOptions, CONNECT_WAIT, Server, Silence, TlsFiles};

/// A back whose server is an application of the test.
pub(crate) struct TestApp {
    pub(crate) pair: Pair,
    /// The client for whom it is opened.
    pub(crate) client: Arc<Client>,
    _place: TestPlace,
}

/// Where an application of the test listens.
pub(crate) struct TestPlace {
    pub(crate) options: AppOptions,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl TestApp {
    /// One with a message on each line that serves each connection so.
    pub(crate) fn new<F>(
        serve: impl Fn(AppEnd) -> F + Send + 'static,
        change: impl FnOnce(&mut Server),
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::at(TestPlace::with_lines(serve), change)
    }

    /// One with a WebSocket that serves each connection so.
    pub(crate) fn with_websocket<F>(serve: impl Fn(WebEnd) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve = Arc::new(serve);
        let open = move |stream| {
            let serve = Arc::clone(&serve);
            async move { serve(WebEnd::accept(stream).await).await }
        };
        Self::at(TestPlace::new("ws+unix", open), |_| {})
    }

    fn at(place: TestPlace, change: impl FnOnce(&mut Server)) -> Self {
        let pair = Pair::new(InMemoryServers::new(|_| async {}), |server| {
            *server = Server::of_app("app".parse().unwrap(), place.options.clone());
            change(server);
        });
        let client = client(Revision::V2025_11_25, "ada", "{}");
        pair.back.meet(&client);
        Self { pair, client, _place: place }
    }

    pub(crate) fn app(&self) -> &Arc<LiveApp> {
        self.pair.back.app().expect("it was made so")
    }
}

impl TestPlace {
    /// An application with a message on each line, that serves each connection so.
    pub(crate) fn with_lines<F>(serve: impl Fn(AppEnd) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::new("unix", move |stream| serve(AppEnd(BufReader::new(stream))))
    }

    fn new<F>(scheme: &str, serve: impl Fn(UnixStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("app");
        let options = AppOptions {
            place: format!("{scheme}:{}", socket.display()).parse().unwrap(),
            token: None,
            headers: AppHeaders::default(),
            tls: TlsFiles::default(),
            connect_wait: CONNECT_WAIT,
            silence: Silence::USUAL,
            close_codes: Vec::new(),
            over_http: false,
        };
        let listener = UnixListener::bind(socket).unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        Self { options, serving, _folder: folder }
    }
}

impl Drop for TestPlace {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One connection, at the application's end.
pub(crate) struct AppEnd(BufReader<UnixStream>);

impl AppEnd {
    /// The next message, with its id.
    pub(crate) async fn next(&mut self) -> Option<(Message, String)> {
        let mut line = String::new();
        self.0.read_line(&mut line).await.ok().filter(|length| *length > 0)?;
        Some(read(line.trim()))
    }

    /// Says this, if it can still be heard.
    pub(crate) async fn say(&mut self, line: &str) {
        drop(self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await);
    }
}

/// A message, with its id.
fn read(text: &str) -> (Message, String) {
    let message = Message::parse(text.as_bytes()).unwrap();
    let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned();
    (message, id)
}

/// One connection with a WebSocket, at the application's end. It answers pings while it is asked for the next thing, and
/// only then.
pub(crate) struct WebEnd(WebSocketStream<UnixStream>);

/// What an application with a WebSocket hears.
pub(crate) enum WebHeard {
    /// A message, with its id.
    Message(Message, String),
    /// A ping, which it has answered.
    Ping,
}

impl WebEnd {
    async fn accept(stream: UnixStream) -> Self {
        #[expect(clippy::result_large_err, reason = "the library wants it so")]
        let agree = |_: &Request, mut response: Response| {
            response.headers_mut().insert("sec-websocket-protocol", "mcp".parse().unwrap());
            Ok(response)
        };
        Self(accept_hdr_async(stream, agree).await.unwrap())
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Option<WebHeard> {
        loop {
            match self.0.next().await?.ok()? {
                Frame::Text(text) => {
                    let (message, id) = read(&text);
                    return Some(WebHeard::Message(message, id));
                }
                Frame::Ping(_) => {
                    self.0.flush().await.ok()?;
                    return Some(WebHeard::Ping);
                }
                _ => {}
            }
        }
    }

    /// Says this, if it can still be heard.
    pub(crate) async fn say(&mut self, text: &str) {
        drop(self.0.send(Frame::text(text)).await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_wire::{Era, method};

    use super::*;
    use crate::back::pair::result;

    #[tokio::test(start_paused = true)]
    async fn an_application_that_says_nothing_to_one_era_is_tried_in_the_other() {
        let app = TestApp::new(
            async |mut end: AppEnd| {
                while let Some((message, id)) = end.next().await {
                    if message.method() == method::DISCOVER {
                        let found = "{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],\
                                     \"capabilities\":{}}";
                        end.say(&result(&id, found)).await;
                    }
                }
            },
            |_| {},
        );
        let connection = tokio::time::timeout(Duration::from_secs(60), app.app().connect()).await;
        assert_eq!(connection.unwrap().era, Era::Modern);
    }

    #[tokio::test(start_paused = true)]
    async fn an_application_that_is_slow_to_open_a_conversation_is_said_to_be() {
        let app = TestApp::new(
            async |mut end: AppEnd| {
                end.say("Welcome to the studio").await;
                while let Some((message, id)) = end.next().await {
                    if message.method() == method::INITIALIZE {
                        tokio::time::sleep(Duration::from_secs(20)).await;
                        end.say(&result(&id, "{\"protocolVersion\":\"2025-11-25\"}")).await;
                    }
                }
            },
            |_| {},
        );
        let connecting = app.app().connect();
        let waiting = app.app().lease();
        let (connection, lease) = tokio::join!(connecting, waiting);
        let why = lease.unwrap_err().to_string();
        assert!(why.contains("it said \"Welcome to the studio\", which is no MCP"), "{why}");
        assert_eq!(connection.era, Era::Legacy, "and it is used as soon as it is ready");
    }
}

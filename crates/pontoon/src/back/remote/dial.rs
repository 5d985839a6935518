//! One connection to an application: a socket, and the handshake of a WebSocket where it is one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::proxy::{Proxies, ProxyError};
use super::tls::{Tls, TlsError};
use super::token::{NoToken, TokenReader};
use crate::back::conversation::carrier::Carrier;
use crate::back::conversation::websocket::{Duplex, WebSocket};
use crate::config::{AppHeader, AppTarget, BadHeaderFile, Endpoint, Host, Secret, TlsFiles};

/// How long each step of a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a TLS handshake may take; less than the whole step, so that it is known what took so long.
const TLS_PATIENCE: Duration = Duration::from_secs(8);

/// The sub-protocol of MCP over WebSocket.
const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mcp");

/// What to do about an application that does not run.
pub(crate) const START_IT: &str = "start the application, or ask the user to,";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Nothing answers there.
    #[error("nothing answers there: {0}")]
    Unreachable(String),
    /// It wants to know who is there, and does not like the answer.
    #[error("it refused the connection with HTTP {status}: {}", ask_for_token(.had_token))]
    Denied {
        /// The HTTP status.
        status: u16,
        /// Whether a token was shown.
        had_token: bool,
    },
    /// The token cannot be read.
    #[error("the token cannot be read")]
    Token(#[from] NoToken),
    /// The headers cannot be read.
    #[error(transparent)]
    Headers(#[from] BadHeaderFile),
    /// There is no way through the proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// There is no TLS connection.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What answers there is something else.
    #[error("what answers there speaks no WebSocket: {0}")]
    Foreign(String),
    /// It takes a connection and says nothing.
    #[error("it took the connection and then said nothing for {} s", PATIENCE.as_secs())]
    Silent,
}

fn ask_for_token(had_token: &bool) -> &'static str {
    match had_token {
        true => "it does not accept the token; give it the one that the application shows",
        false => "it wants a token; give it with --token-env, --token-file or --token-command",
    }
}

/// Dials an application.
#[derive(Debug)]
pub(crate) struct Dialer {
    tokens: TokenReader,
    proxies: Proxies,
    /// The application does not know the sub-protocol, and must not be asked for it.
    is_plain: bool,
    /// Made when it is needed first.
    tls: Option<Tls>,
}

impl Dialer {
    /// One that has dialled nothing yet.
    pub(crate) fn new(tokens: TokenReader) -> Self {
        Self { proxies: Proxies::new(&tokens.environment), tokens, is_plain: false, tls: None }
    }

    /// Makes one connection; messages may be as long as `max_message`.
    pub(crate) async fn dial(
        &mut self,
        app: &AppTarget,
        max_message: usize,
    ) -> Result<Carrier, DialError> {
        match &app.endpoint {
            Endpoint::Tcp(host) => Ok(Carrier::Tcp(in_time(connect(host)).await?)),
            Endpoint::Unix(path) => Ok(Carrier::Unix(in_time(connect_unix(path)).await?)),
            Endpoint::WebSocket { .. } | Endpoint::WebSocketUnix(_) => {
                let stream = in_time(self.reach(app)).await?;
                // A command is not run for an application that is not there.
                let shown = self.credentials(app).await?;
                let dialing = self.open_either_way(stream, app, &shown, max_message);
                in_time(dialing).await
            }
        }
    }

    /// What an application is shown, as of now.
    pub(super) async fn credentials(&self, app: &AppTarget) -> Result<AppCredentials, DialError> {
        let token = match &app.token {
            Some(source) => Some(self.tokens.read(source).await?),
            None => None,
        };
        let headers = app.headers.read()?;
        // Those of the file may be others than when the log began.
        let of_file = headers.iter().skip(app.headers.typed.len());
        of_file
            .filter_map(AppHeader::secret)
            .for_each(|value| self.tokens.secrets.hide_passing(value));
        Ok(AppCredentials { token, headers })
    }

    async fn open_either_way(
        &mut self,
        stream: Box<dyn Duplex>,
        app: &AppTarget,
        shown: &AppCredentials,
        max_message: usize,
    ) -> Result<Carrier, DialError> {
        let opened = self.open(stream, app, shown, max_message).await;
        match opened {
            Err(OpenError::UnknownProtocol) => {
                self.is_plain = true;
                let stream = self.reach(app).await?;
                self.open(stream, app, shown, max_message).await
            }
            opened => opened,
        }
        .map_err(OpenError::into_dial_error)
    }

    /// What a WebSocket can be opened on, or HTTP spoken over.
    pub(crate) async fn reach(&mut self, app: &AppTarget) -> Result<Box<dyn Duplex>, DialError> {
        match &app.endpoint {
            Endpoint::WebSocketUnix(path) | Endpoint::Unix(path) => {
                Ok(Box::new(connect_unix(path).await?))
            }
            Endpoint::Tcp(host) => Ok(Box::new(connect(host).await?)),
            Endpoint::WebSocket { host, is_secure: false, .. } => {
                Ok(Box::new(self.connect_by_proxy(host, false).await?))
            }
            Endpoint::WebSocket { host, is_secure: true, .. } => {
                let stream = self.connect_by_proxy(host, true).await?;
                let opening = self.tls(&app.tls).await?.open(stream, &host.name);
                let opened = tokio::time::timeout(TLS_PATIENCE, opening).await;
                Ok(Box::new(opened.unwrap_or(Err(TlsError::Silent))?))
            }
        }
    }

    /// Connects to a host, through the proxy on the way there if there is one.
    async fn connect_by_proxy(&self, host: &Host, is_secure: bool) -> Result<TcpStream, DialError> {
        let Some(proxy) = self.proxies.on_the_way_to(host, is_secure)? else {
            return connect(host).await;
        };
        tracing::debug!(proxy = %proxy.host, %host, "through a proxy");
        match connect(&proxy.host).await {
            Ok(stream) => Ok(proxy.tunnel(stream, host).await?),
            Err(DialError::Unreachable(why)) => Err(proxy.unreachable(why).into()),
            Err(error) => Err(error),
        }
    }

    async fn tls(&mut self, files: &TlsFiles) -> Result<&Tls, DialError> {
        if self.tls.is_none() {
            // The certificates of a machine are many, and other things go on meanwhile.
            let files = files.clone();
            let loaded = tokio::task::spawn_blocking(move || Tls::load(&files)).await;
            let failed = |_| TlsError::Failed("its settings could not be made".to_owned());
            self.tls = Some(loaded.map_err(failed)??);
        }
        self.tls.as_ref().ok_or(DialError::Silent)
    }

    async fn open(
        &self,
        stream: Box<dyn Duplex>,
        app: &AppTarget,
        shown: &AppCredentials,
        max_message: usize,
    ) -> Result<Carrier, OpenError> {
        let url = match &app.endpoint {
            Endpoint::WebSocket { host, path, .. } => format!("ws://{host}{path}"),
            _ => "ws://localhost/".to_owned(),
        };
        let request = self.request(&url, shown)?;
        let config = WebSocketConfig::default()
            .read_buffer_size(8 * 1024)
            .write_buffer_size(0)
            .max_message_size(Some(max_message))
            .max_frame_size(Some(max_message));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => {
                Ok(Carrier::WebSocket(Box::new(WebSocket::new(socket, app.silence))))
            }
            Err(Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
                SubProtocolError::NoSubProtocol,
            ))) => Err(OpenError::UnknownProtocol),
            Err(error) => Err(OpenError::Dial(told(error, shown.token.is_some()))),
        }
    }

    fn request(&self, url: &str, shown: &AppCredentials) -> Result<Request, DialError> {
        let mut request = url
            .into_client_request()
            .map_err(|error| DialError::Foreign(format!("the address cannot be used: {error}")))?;
        if !self.is_plain {
            request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        }
        shown.add_to(request.headers_mut())?;
        Ok(request)
    }
}

/// What an application is shown when a WebSocket to it is opened, or with each request of HTTP.
#[derive(Debug)]
pub(super) struct AppCredentials {
    pub(super) token: Option<Secret>,
    pub(super) headers: Vec<AppHeader>,
}

impl AppCredentials {
    /// Puts them among the headers of a request.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) -> Result<(), DialError> {
        for AppHeader { name, value, .. } in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.expose());
            // Both were looked at when they were read.
            if let (Ok(name), Ok(mut value)) = (name, value) {
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
        if let Some(token) = &self.token {
            let value = [b"Bearer ", token.expose()].concat();
            let value = HeaderValue::from_bytes(&value);
            let mut value = value.map_err(|_| NoToken::Form)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(())
    }
}

/// Why no WebSocket was opened.
enum OpenError {
    /// It did not choose our sub-protocol, and so may not know any.
    UnknownProtocol,
    Dial(DialError),
}

impl OpenError {
    fn into_dial_error(self) -> DialError {
        match self {
            Self::UnknownProtocol => DialError::Foreign("it agrees to no sub-protocol".to_owned()),
            Self::Dial(error) => error,
        }
    }
}

impl From<DialError> for OpenError {
    fn from(error: DialError) -> Self {
        Self::Dial(error)
    }
}

fn told(error: Error, had_token: bool) -> DialError {
    match error {
        Error::Http(response) => match response.status().as_u16() {
            status @ (401 | 403) => DialError::Denied { status, had_token },
            status => DialError::Foreign(format!("it answered HTTP {status}")),
        },
        Error::Io(error) => match TlsError::of(&error) {
            Some(error) => DialError::Tls(error),
            // Which of these it is, is chance.
            None => match error.kind() {
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof => hung_up(),
                _ => DialError::Foreign(format!("the connection broke off ({error})")),
            },
        },
        Error::Protocol(ProtocolError::HandshakeIncomplete) => hung_up(),
        Error::Protocol(ProtocolError::HttparseError(_)) => {
            DialError::Foreign("its answer is no HTTP; if it speaks TLS, write wss://".to_owned())
        }
        error => DialError::Foreign(error.to_string()),
    }
}

fn hung_up() -> DialError {
    DialError::Foreign("it hung up during the handshake".to_owned())
}

/// One step of a connection, which may not take too long.
async fn in_time<T>(step: impl Future<Output = Result<T, DialError>>) -> Result<T, DialError> {
    tokio::time::timeout(PATIENCE, step).await.unwrap_or(Err(DialError::Silent))
}

/// Connects to a host; on this machine by both families, for an application may listen on one only.
async fn connect(host: &Host) -> Result<TcpStream, DialError> {
    let connected = match host.is_loopback() {
        true => {
            let named: Option<IpAddr> = host.name.parse().ok();
            let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
            let (first, second) = match named {
                Some(address @ IpAddr::V6(_)) => (address, v4),
                Some(address) => (address, v6),
                None => (v4, v6),
            };
            match TcpStream::connect((first, host.port)).await {
                Err(error) => TcpStream::connect((second, host.port)).await.map_err(|_| error),
                connected => connected,
            }
        }
        false => TcpStream::connect((host.name.as_str(), host.port)).await,
    };
    let stream = connected.map_err(|error| unreachable(&error))?;
    drop(stream.set_nodelay(true));
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5));
    // Where it cannot be set, a connection that is half open is noticed later.
    if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "the connection has no keep-alive");
    }
    Ok(stream)
}

async fn connect_unix(path: &Path) -> Result<UnixStream, DialError> {
    UnixStream::connect(path).await.map_err(|error| unreachable(&error))
}

fn unreachable(error: &io::Error) -> DialError {
    DialError::Unreachable(match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection was refused".to_owned(),
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use pontoon_supervise::Support;

    use super::*;
    use crate::back::child::process::Starter;
    use crate::config::{AppHeaders, Environment, Silence};
    use crate::observe::log::Secrets;

    /// Dials this address, where the test listens.
    async fn dial(url: &str) -> Result<Carrier, DialError> {
        dial_with(url, AppHeaders::default(), &Secrets::default()).await
    }

    async fn dial_with(
        url: &str,
        headers: AppHeaders,
        secrets: &Secrets,
    ) -> Result<Carrier, DialError> {
        let (endpoint, tls) = (url.parse().unwrap(), TlsFiles::default());
        let app = AppTarget { endpoint, token: None, headers, tls, silence: Silence::USUAL };
        let starter = Starter::Nothing(Support::default());
        let tokens =
            TokenReader { starter, environment: Environment::default(), secrets: secrets.clone() };
        Dialer::new(tokens).dial(&app, 1 << 20).await
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_takes_a_connection_and_says_nothing_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        let plain = dial(&format!("ws://{place}")).await;
        assert!(matches!(plain, Err(DialError::Silent)), "{plain:?}");
        let secure = dial(&format!("wss://{place}")).await;
        let secure = secure.unwrap_err().to_string();
        assert_eq!(secure, "what answers there says nothing to a TLS handshake");
    }

    #[tokio::test]
    async fn what_a_file_of_headers_has_now_is_hidden_from_then_on() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headers");
        let (secrets, typed) =
            (Secrets::default(), vec!["X-Typed: known-already".parse().unwrap()]);
        for value in ["sesame-1", "sesame-2"] {
            std::fs::write(&file, format!("Cookie: {value}\nX-Project: work\n")).unwrap();
            let headers = AppHeaders { typed: typed.clone(), file: Some(file.clone()) };
            assert!(dial_with(&url, headers, &secrets).await.is_err(), "it hangs up at once");
        }
        let told = secrets.redactor().value("text", "sesame-1, sesame-2, work");
        assert_eq!(told, "[hidden], [hidden], work");
    }
}

//! Clients of a bridge with a certificate: one that shakes hands by itself, and a tunnel for all the others.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio::net::{TcpListener, TcpStream as AsyncStream};
use tokio_rustls::TlsConnector;

use crate::client::PATIENCE;

/// The name that every client calls.
const NAME: &str = "localhost";

/// One TLS connection.
#[derive(Debug)]
pub struct TlsClient(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// A new connection, once both sides have agreed.
    ///
    /// # Errors
    ///
    /// When they do not.
    pub fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let client = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(client, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self(stream))
    }

    /// The certificate that the other side has shown.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn seen(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().expect("a certificate")[0].to_vec()
    }

    /// What both have agreed on.
    pub fn connection(&self) -> &ClientConnection {
        &self.0.conn
    }

    /// Sends these bytes, and reads the head of an answer and a body of the length that it names.
    ///
    /// # Errors
    ///
    /// When no whole answer comes.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<String> {
        self.0.write_all(request)?;
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&answer).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                    return Ok(text);
                }
            }
            match self.0.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => answer.extend_from_slice(&piece[..length]),
            }
        }
    }
}

/// Makes a bridge with a certificate one without, for clients that speak no TLS: gives the address to call. It ends with
/// the program.
///
/// # Panics
///
/// When nothing can listen.
pub fn tunnel(to: SocketAddr, config: &Arc<ClientConfig>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("a socket");
    let connector = TlsConnector::from(Arc::clone(config));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((plain, _)) = listener.accept().await {
                // One that fails is closed, which its client sees.
                tokio::spawn(carry(plain, to, connector.clone()));
            }
        });
    });
    address
}

async fn carry(mut plain: AsyncStream, to: SocketAddr, connector: TlsConnector) -> io::Result<()> {
    plain.set_nodelay(true)?;
    let stream = AsyncStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let mut secure = connector.connect(name, stream).await?;
    tokio::io::copy_bidirectional(&mut plain, &mut secure).await?;
    Ok(())
}

//! TLS at the listener: the certificate that is shown now, and the handshake with a client.
//!
//! When the files are to be read again is left to others. A pair that cannot be used changes nothing: the one that was
//! shown goes on, and the fault is told. What is said inside of TLS is for `http`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::sign::SingleCertAndKey;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::lock::Lock;
use crate::pem_files::{BadPemFile, certified_key};

/// How long the handshake may take, which is before the head of a request has its own time.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// What a handshake begins with.
const HANDSHAKE: u8 = 22;

/// How much is read to see what a client speaks. Later reads go past this buffer.
const FIRST_BYTES: usize = 512;

/// What a client hears that takes us for a server without TLS.
const ANSWER_TO_PLAIN: &str = "HTTP/1.1 400 Bad Request\r\n\
    content-type: text/plain; charset=utf-8\r\n\
    content-length: 56\r\n\
    connection: close\r\n\r\n\
    this is an https address: write https:// in front of it\n";

/// How much of a request is read after that answer: a connection that is closed before would take the answer along.
const MOST_OF_PLAIN: u64 = 64 << 10;

/// The certificate that clients are shown, and where it comes from.
pub struct ServerTls {
    certificate: PathBuf,
    key: PathBuf,
    shown: Lock<ShownCertificate>,
    fault: Lock<Option<BadPemFile>>,
}

struct ShownCertificate {
    chain: Vec<CertificateDer<'static>>,
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A connection that is TLS.
pub type SecureStream<S> = TlsStream<BufReader<S>>;

/// Why a connection did not become TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsHandshakeError {
    /// The client spoke HTTP without TLS.
    #[error("the client speaks HTTP without TLS")]
    Plain,
    /// The client spoke something else.
    #[error("what the client speaks is no TLS: its first byte is {0}")]
    NotTls(u8),
    /// The client left, or said nothing that both can go on with.
    #[error("no TLS connection came about")]
    Failed(#[source] io::Error),
    /// The client took too long.
    #[error("the handshake took longer than {} s", HANDSHAKE_TIME.as_secs())]
    Slow,
}

impl ServerTls {
    /// What these files hold.
    ///
    /// # Errors
    ///
    /// The file that cannot be used.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, BadPemFile> {
        let shown = Lock::new(ShownCertificate::read(certificate, key)?);
        let fault = Lock::default();
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), shown, fault })
    }

    /// The files that it is read from.
    pub fn files(&self) -> Vec<PathBuf> {
        vec![self.certificate.clone(), self.key.clone()]
    }

    /// The certificate that a new connection is shown.
    pub fn shown(&self) -> CertificateDer<'static> {
        self.shown.lock().chain[0].clone()
    }

    /// Why the files that are there now are not what is shown.
    pub fn fault(&self) -> Option<BadPemFile> {
        self.fault.lock().clone()
    }

    /// Reads the files again. New connections are shown what is in them, if it can be used.
    pub fn renew(&self) {
        let read = ShownCertificate::read(&self.certificate, &self.key);
        let fault = read.as_ref().err().cloned();
        if let Some(bad) = &fault
            && *self.fault.lock() != fault
        {
            let error = bad as &dyn std::error::Error;
            tracing::error!(error, "the new certificate cannot be used; the old one is shown on");
        }
        *self.fault.lock() = fault;
        let Ok(read) = read else { return };
        let mut shown = self.shown.lock();
        // Clients that were here go on with the keys that they have agreed on, where nothing is new.
        if shown.chain != read.chain {
            *shown = read;
            let file = self.certificate.display();
            tracing::info!(%file, "a new certificate is shown to new connections");
        }
    }

    /// Shakes hands with a client. A request that comes without TLS is answered with where it should go.
    ///
    /// # Errors
    ///
    /// [`TlsHandshakeError`] when there is no TLS connection; the client is gone, or is sent away.
    pub async fn open<S>(&self, stream: S) -> Result<SecureStream<S>, TlsHandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let opening = self.shake_hands(BufReader::with_capacity(FIRST_BYTES, stream));
        let opened = tokio::time::timeout(HANDSHAKE_TIME, opening).await;
        opened.unwrap_or(Err(TlsHandshakeError::Slow))
    }

    async fn shake_hands<S>(
        &self,
        mut stream: BufReader<S>,
    ) -> Result<SecureStream<S>, TlsHandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let first = stream.fill_buf().await.map_err(TlsHandshakeError::Failed)?.first().copied();
        match first {
            Some(HANDSHAKE) => {}
            None => return Err(TlsHandshakeError::Failed(io::ErrorKind::UnexpectedEof.into())),
            // Methods have capital letters.
            Some(first) if first.is_ascii_uppercase() => {
                drop(send_away(stream).await);
                return Err(TlsHandshakeError::Plain);
            }
            Some(first) => return Err(TlsHandshakeError::NotTls(first)),
        }
        let acceptor = self.shown.lock().acceptor.clone();
        acceptor.accept(stream).await.map_err(TlsHandshakeError::Failed)
    }
}

async fn send_away<S: AsyncRead + AsyncWrite + Unpin>(mut stream: BufReader<S>) -> io::Result<()> {
    stream.write_all(ANSWER_TO_PLAIN.as_bytes()).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MOST_OF_PLAIN), &mut tokio::io::sink()).await?;
    Ok(())
}

impl ShownCertificate {
    fn read(certificate: &Path, key: &Path) -> Result<Self, BadPemFile> {
        let provider = Arc::new(ring::default_provider());
        let own = certified_key(certificate, key, &provider)?;
        let chain = own.cert.clone();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| BadPemFile::new(certificate, error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { chain, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::Era;
    use tempfile::TempDir;
    use tokio::io::DuplexStream;
    use tokio::time::Instant;

    use super::*;
    use crate::app::test_bridge::request::{bare, modern};
    use crate::app::test_bridge::{TestBridge, ToolServer};
    use crate::back::remote::tls::Tls;
    use crate::pem_files::samples::{EC, RSA, write};

    fn bridge() -> (TestBridge, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), EC);
        let servers = ToolServer::new(Era::Legacy).servers();
        let bridge = TestBridge::start(servers, |settings, _| {
            settings.tls_cert = Some(folder.path().join("tls.crt"));
            settings.tls_key = Some(folder.path().join("tls.key"));
        });
        (bridge, folder)
    }

    /// The certificate that a new connection is shown, from the other side.
    async fn seen(bridge: &TestBridge) -> CertificateDer<'static> {
        let stream = Tls::without_proof().open(bridge.wire(), "localhost").await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// All that the bridge says until it closes, after it has heard this.
    async fn said(mut wire: DuplexStream, bytes: &[u8]) -> Vec<u8> {
        wire.write_all(bytes).await.unwrap();
        let mut said = Vec::new();
        wire.read_to_end(&mut said).await.unwrap();
        said
    }

    #[tokio::test(start_paused = true)]
    async fn requests_over_tls_are_answered_as_others_and_know_their_address() {
        let (bridge, _folder) = bridge();
        let mut connection = bridge.connect_secure();
        for id in 0..3 {
            let call = modern(id, "tools/call", "\"name\":\"wait\",\"arguments\":{\"seconds\":1}");
            let response = connection.send(&call).await;
            assert_eq!(response.status, 200);
            connection = response.next().await;
        }
        let page = connection.send(&bare("GET", "/", &[])).await.body().await;
        assert!(page.contains("https://127.0.0.1:8080/mcp/demo"), "{page}");
        let mut stream = bridge.connect_secure();
        stream
            .write(&modern(9, "tools/call", "\"name\":\"wait\",\"arguments\":{\"seconds\":20}"))
            .await;
        let stream = stream.begin().await;
        assert!(stream.is_stream());
        // It goes in order: the answer comes, and the connection ends.
        let stopping = tokio::spawn(bridge.stop());
        assert!(stream.answer().await.contains("\"by\""));
        assert!(stopping.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_end_its_handshake_is_let_go_after_ten_seconds() {
        let (bridge, _folder) = bridge();
        for beginning in [&b""[..], &[HANDSHAKE], &[HANDSHAKE, 3, 1, 2, 0, 1, 0, 1]] {
            let began = Instant::now();
            assert_eq!(said(bridge.wire(), beginning).await, b"");
            assert_eq!(began.elapsed(), HANDSHAKE_TIME, "{beginning:?}");
        }
        // What follows has its own time.
        let began = Instant::now();
        bridge.connect_secure().until_closed().await;
        assert_eq!(began.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_tls_is_told_where_to_go_and_others_are_closed() {
        let (bridge, _folder) = bridge();
        let mut wire = bridge.wire();
        wire.write_all(bare("GET", "/health", &[]).as_bytes()).await.unwrap();
        let mut told = vec![0; ANSWER_TO_PLAIN.len()];
        wire.read_exact(&mut told).await.unwrap();
        let told = String::from_utf8(told).unwrap();
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("write https://"), "{body}");
        // It is not kept, however much it says.
        let began = Instant::now();
        assert_eq!(wire.read(&mut [0]).await.unwrap(), 0);
        drop(wire);
        assert_eq!(said(bridge.wire(), b"SSH-2.0-x\r\n").await, ANSWER_TO_PLAIN.as_bytes());
        assert!(began.elapsed() <= HANDSHAKE_TIME);
        for rubbish in [&b"\0\0"[..], b"ssh", b"\x80\x2e\x01", b"\xff"] {
            let began = Instant::now();
            assert_eq!(said(bridge.wire(), rubbish).await, b"");
            assert_eq!(began.elapsed(), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_pair_is_for_new_connections_and_a_broken_one_for_none() {
        let (bridge, folder) = bridge();
        let tls = Arc::clone(bridge.site.tls.as_ref().unwrap());
        let old = seen(&bridge).await;
        let early = bridge.connect_secure().send(&bare("GET", "/ready", &[])).await.next().await;
        write(folder.path(), [EC[0], RSA[1]]);
        tls.renew();
        assert_eq!(seen(&bridge).await, old);
        let health = bridge.connect_secure().send(&bare("GET", "/health", &[])).await.body().await;
        assert!(health.contains("degraded") && health.contains("it is not the key of"), "{health}");
        write(folder.path(), RSA);
        tls.renew();
        assert_ne!(seen(&bridge).await, old);
        assert_eq!(tls.fault(), None);
        let health = early.send(&bare("GET", "/health", &[])).await.body().await;
        assert!(!health.contains("certificate"), "{health}");
    }
}

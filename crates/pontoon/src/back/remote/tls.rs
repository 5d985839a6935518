//! TLS to an application: whom we trust, what we show of ourselves, and what went wrong, in words.
//!
//! Trusted are the authorities of this machine and those of `--ca-file`; where the machine has none, as in an image with
//! nothing but this program, those of the web. Nothing is read before an address wants TLS.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::TlsFiles;
use crate::pem_files::{BadPemFile, certificates, certified_key};

/// Opens TLS connections, each with the same settings.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that was named cannot be used.
    #[error(transparent)]
    File(#[from] BadPemFile),
    /// There is no authority to trust.
    #[error("no certificate of an authority could be taken over: {0}")]
    NoRoots(String),
    /// The host has no name that a certificate could be for.
    #[error("{0:?} is no name that a certificate could be for")]
    Name(String),
    /// Its certificate is signed by one that is not trusted.
    #[error("its certificate is signed by an authority that is not known here")]
    UnknownIssuer,
    /// Its certificate is for another host.
    #[error("its certificate is not for {expected}{presented}")]
    OtherName {
        /// The name in the address.
        expected: String,
        /// What it is for instead, if that is known.
        presented: String,
    },
    /// Its certificate is out of date.
    #[error("its certificate {0}")]
    Date(&'static str),
    /// Its certificate cannot be accepted for another reason.
    #[error("its certificate cannot be accepted: {0}")]
    Certificate(String),
    /// It does not accept ours.
    #[error("it {0}")]
    Ours(&'static str),
    /// What answers is not TLS.
    #[error("what answers there speaks no TLS")]
    NotTls,
    /// What answers says nothing.
    #[error("what answers there says nothing to a TLS handshake")]
    Silent,
    /// It went wrong otherwise.
    #[error("the TLS handshake failed: {0}")]
    Failed(String),
}

impl TlsError {
    /// What a user can do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::File(_) => "correct the file",
            Self::NoRoots(_) | Self::UnknownIssuer => {
                "give the certificate of its authority with --ca-file FILE"
            }
            Self::Name(_) | Self::OtherName { .. } => {
                "write the name that its certificate is for in the address"
            }
            Self::Date(_) => "renew its certificate, or correct the clock of this machine,",
            Self::Certificate(_) => "give the application another certificate",
            Self::Ours(_) => "show another certificate with --client-cert FILE --client-key FILE",
            Self::NotTls | Self::Silent => {
                "write the address without TLS (ws://, http://) if it has none"
            }
            Self::Failed(_) => "look whether the address is that of the application",
        }
    }

    /// What went wrong in a handshake, or right after it: a server may look at our certificate only then.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match inner {
            rustls::Error::InvalidCertificate(bad) => Self::of_certificate(bad),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateRequired => {
                    Self::Ours("wants a certificate of ours, and none was given")
                }
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied => Self::Ours("does not accept our certificate"),
                alert => Self::Failed(format!("it said {alert:?}")),
            },
            error => Self::Failed(error.to_string()),
        })
    }

    fn of_certificate(bad: &CertificateError) -> Self {
        match bad {
            // One of the same name has another key: it was made anew, perhaps.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Self::Date("has expired")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::Date("is not valid yet")
            }
            CertificateError::NotValidForNameContext { expected, presented } => Self::OtherName {
                expected: expected.to_str().into_owned(),
                presented: match presented.is_empty() {
                    true => String::new(),
                    false => format!(", but for {}", presented.join(", ")),
                },
            },
            bad => Self::Certificate(format!("{bad:?}")),
        }
    }
}

impl Tls {
    /// Takes over the authorities of this machine and these files. It may take a moment.
    ///
    /// # Errors
    ///
    /// [`TlsError`] when a file cannot be used, or no authority is left to trust.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let own = own_certificate(files, &provider)?;
        let roots = Arc::new(roots(files)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| TlsError::NoRoots(error.to_string()))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Failed(error.to_string()))?
            .with_webpki_verifier(verifier);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(own) => config
                .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(own))),
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Wants no proof of who answers: for an address of our own machine, which is asked without TLS otherwise. The
    /// certificate that is shown there is for the names by which others call.
    pub(crate) fn without_proof() -> Self {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the versions of the provider itself")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Shakes hands with what answers as this host.
    pub(crate) async fn open<S>(&self, stream: S, host: &str) -> Result<TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| TlsError::Name(host.to_owned()))?;
        self.connector.connect(name, stream).await.map_err(|error| {
            TlsError::of(&error).unwrap_or_else(|| match error.kind() {
                io::ErrorKind::UnexpectedEof => TlsError::Failed("it hung up".to_owned()),
                _ => TlsError::Failed(error.to_string()),
            })
        })
    }
}

/// Takes any certificate for good, if what answers has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Looks whether the files that were named can be used.
///
/// # Errors
///
/// [`TlsError::File`] for the first that cannot.
pub fn check_files(files: &TlsFiles) -> Result<(), TlsError> {
    if let Some(file) = &files.authorities {
        certificates(file)?;
    }
    own_certificate(files, &ring::default_provider()).map(drop)
}

/// Whom we trust.
fn roots(files: &TlsFiles) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let of_machine = rustls_native_certs::load_native_certs();
    for error in &of_machine.errors {
        tracing::debug!(%error, "a certificate of this machine was passed over");
    }
    roots.add_parsable_certificates(of_machine.certs);
    if roots.is_empty() {
        tracing::debug!("this machine has no authorities; those of the web are trusted");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let Some(file) = &files.authorities else { return Ok(roots) };
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added.map_err(|error| BadPemFile::new(file, format!("it cannot be trusted: {error}")))?;
    }
    Ok(roots)
}

/// What we show of ourselves, if something was given.
fn own_certificate(
    files: &TlsFiles,
    provider: &CryptoProvider,
) -> Result<Option<CertifiedKey>, TlsError> {
    let Some((certificate, key)) = &files.own else { return Ok(None) };
    Ok(Some(certified_key(certificate, key, provider)?))
}

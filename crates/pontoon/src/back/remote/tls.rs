//! TLS to an application: whom we trust, what we show of ourselves, and what went wrong, in words.
//!
//! Trusted are the authorities of this machine and those of `--ca-file`; where the machine has none, as in an image with
//! nothing but this program, those of the web. Nothing is read before an address wants TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::TlsFiles;

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
    #[error("{}: {why}", file.display())]
    File {
        /// Which one.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
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
            Self::File { .. } => "correct the file",
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

    /// Shakes hands with what answers as this host.
    pub(crate) async fn open(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
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
        added.map_err(|error| bad_file(file, format!("it cannot be trusted: {error}")))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad_file(file, in_words(error)))?;
    match certificates.is_empty() {
        true => Err(bad_file(file, "there is no certificate in PEM form in it".to_owned())),
        false => Ok(certificates),
    }
}

/// What we show of ourselves, if something was given.
fn own_certificate(
    files: &TlsFiles,
    provider: &CryptoProvider,
) -> Result<Option<CertifiedKey>, TlsError> {
    let Some((certificate, key)) = &files.own else { return Ok(None) };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            bad_file(key, "there is no key in PEM form in it, or it is encrypted".to_owned())
        }
        error => bad_file(key, in_words(error)),
    })?;
    let own = CertifiedKey::from_der(chain, secret, provider).map_err(|error| {
        let why = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("it is not the key of {}", certificate.display())
            }
            error => format!("the key cannot be used: {error}"),
        };
        bad_file(key, why)
    })?;
    Ok(Some(own))
}

fn bad_file(file: &Path, why: String) -> TlsError {
    TlsError::File { file: file.to_owned(), why }
}

fn in_words(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("it cannot be read: {error}"),
        error => format!("it is not in PEM form: {error}"),
    }
}

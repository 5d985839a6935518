//! Certificates and keys in PEM files, read and compared with each other.
//!
//! What they are for is left to those who read them: `back/remote` shows them to applications, `front` to clients.

use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::plain_file::{self, FileKind};

/// More bytes than this are no certificates: all authorities of the web have a quarter of it.
const LONGEST: u64 = 1 << 20;

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct BadPemFile {
    /// Which one.
    pub file: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl BadPemFile {
    /// This file, and what is wrong with it.
    pub fn new(file: &Path, why: impl Into<String>) -> Self {
        Self { file: file.to_owned(), why: why.into() }
    }
}

/// The certificates in a file, at least one.
///
/// # Errors
///
/// When it cannot be read, or there is none in it.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, BadPemFile> {
    let text = read(file)?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| BadPemFile::new(file, in_words(&error)))?;
    match certificates.is_empty() {
        true => Err(BadPemFile::new(file, "there is no certificate in PEM form in it")),
        false => Ok(certificates),
    }
}

/// The certificates in a file, the first of which is that of the key in the other.
///
/// # Errors
///
/// The file that cannot be used. Of a pair that does not fit it is that of the key.
pub fn certified_key(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, BadPemFile> {
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            BadPemFile::new(key, "there is no key in PEM form in it, or it is encrypted")
        }
        error => BadPemFile::new(key, in_words(&error)),
    })?;
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let why = format!("it is not the key of {}", certificate.display());
            BadPemFile::new(key, why)
        }
        rustls::Error::InvalidCertificate(_) => {
            let why = format!("its first certificate cannot be read: {error}");
            BadPemFile::new(certificate, why)
        }
        error => BadPemFile::new(key, format!("the key cannot be used: {error}")),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, BadPemFile> {
    plain_file::read(file, FileKind::Regular, LONGEST)
        .map_err(|error| BadPemFile::new(file, format!("it cannot be read: {error}")))
}

fn in_words(error: &pem::Error) -> String {
    format!("it is not in PEM form: {error}")
}

/// Certificates for tests, each for `localhost`, with their keys: RSA as PKCS#1, EC as SEC1 and as PKCS#8.
#[cfg(test)]
pub(crate) mod samples {
    pub(crate) const RSA: [&str; 2] =
        [include_str!("pem_files/rsa.crt"), include_str!("pem_files/rsa.key")];
    pub(crate) const EC: [&str; 2] =
        [include_str!("pem_files/ec.crt"), include_str!("pem_files/ec.key")];
    pub(crate) const EC_PKCS8: [&str; 2] = [EC[0], include_str!("pem_files/ec-pkcs8.key")];

    /// Writes a certificate and a key into this folder.
    pub(crate) fn write(folder: &std::path::Path, [certificate, key]: [&str; 2]) {
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;

    use super::samples::{EC, EC_PKCS8, RSA, write};
    use super::*;

    /// Compares how many certificates are in a pair, or which file is told and for what.
    #[track_caller]
    fn check(pair: [&str; 2], expected: Result<usize, (&str, &str)>) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), pair);
        let files = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        match (certified_key(&files[0], &files[1], &ring::default_provider()), expected) {
            (Ok(found), Ok(length)) => assert_eq!(found.cert.len(), length),
            (Err(bad), Err((file, why))) => {
                assert!(bad.file.ends_with(file) && bad.why.contains(why), "{bad}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn keys_are_taken_in_the_three_forms_that_there_are() {
        for pair in [RSA, EC, EC_PKCS8] {
            check(pair, Ok(1));
        }
        // Other things may stand around, as `openssl` writes them, and a chain.
        let chain = format!("subject=CN\n{}\n{}", EC[0], RSA[0]);
        check([&chain, &format!("{}{}", EC[0], EC[1])], Ok(2));
    }

    #[test]
    fn the_file_that_cannot_be_used_is_told() {
        check([EC[0], RSA[1]], Err(("tls.key", "it is not the key of ")));
        let reversed = format!("{}{}", RSA[0], EC[0]);
        check([&reversed, EC[1]], Err(("tls.key", "it is not the key of ")));
        check(["", EC[1]], Err(("tls.crt", "no certificate in PEM form")));
        check([EC[1], EC[1]], Err(("tls.crt", "no certificate in PEM form")));
        check([EC[0], EC[0]], Err(("tls.key", "no key in PEM form in it, or it is encrypted")));
        let torn = &EC[0][..EC[0].len() / 2];
        check([torn, EC[1]], Err(("tls.crt", "it is not in PEM form")));
        check([EC[0], &EC[1][..EC[1].len() / 2]], Err(("tls.key", "it is not in PEM form")));
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        check([nonsense, EC[1]], Err(("tls.crt", "first certificate cannot be read")));
        let nonsense = nonsense.replace("CERTIFICATE", "PRIVATE KEY");
        check([EC[0], &nonsense], Err(("tls.key", "the key cannot be used")));
        check([&"x".repeat(2 << 20), EC[1]], Err(("tls.crt", "longer than 1048576 bytes")));
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let gone = certificates(Path::new("/gone-7")).unwrap_err();
        assert!(gone.to_string().starts_with("/gone-7: it cannot be read: No such file"), "{gone}");
        let device = certificates(Path::new("/dev/zero")).unwrap_err();
        assert!(device.why.contains("it is not a file"), "{device}");
    }
}

//! Certificates for applications with TLS, and for their clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};

/// One that signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Signed {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        // Names of authorities differ.
        let name = format!("authority {:?}", &key.public_key_raw()[..8]);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("it signs itself");
        Self { issuer: Issuer::new(params, key), certificate }
    }
}

impl Authority {
    /// A certificate for these names and addresses.
    ///
    /// # Panics
    ///
    /// When one of them is no name.
    pub fn sign(&self, names: &[&str]) -> Signed {
        self.sign_so(names, |_| {})
    }

    /// The same, changed before it is signed.
    ///
    /// # Panics
    ///
    /// When a name is none.
    pub fn sign_so(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it signs");
        Signed { certificate, key }
    }

    /// How a client speaks TLS that trusts it and nothing else, in these versions or in both.
    ///
    /// # Panics
    ///
    /// When it cannot be trusted.
    pub fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let versions = if versions.is_empty() { rustls::DEFAULT_VERSIONS } else { versions };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions of the provider");
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// Writes its certificate into this folder.
    ///
    /// # Panics
    ///
    /// When that is not possible.
    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        write(folder, name, &self.certificate.pem())
    }
}

impl Signed {
    /// The certificate, as it is shown.
    pub fn der(&self) -> &[u8] {
        self.certificate.der()
    }

    /// Writes the certificate and the key into this folder.
    ///
    /// # Panics
    ///
    /// When that is not possible.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let certificate = write(folder, &format!("{name}.crt"), &self.certificate.pem());
        (certificate, write(folder, &format!("{name}.key"), &self.key.serialize_pem()))
    }

    /// How an application speaks TLS with it. It lets in clients that this authority knows, or all.
    ///
    /// # Panics
    ///
    /// When the certificate cannot be used.
    pub fn server(&self, clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the usual ones");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(authority.certificate.der().clone()).expect("a certificate");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().expect("one authority"))
            }
        };
        let key = self.key.serialize_pem();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let certificate = self.certificate.der().clone();
        Arc::new(builder.with_single_cert(vec![certificate], key).expect("they fit"))
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

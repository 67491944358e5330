//! The stub behind TLS.

use std::{io, path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// A certificate, and whether clients need one too.
#[derive(Clone)]
pub struct TlsServer(TlsAcceptor);

impl TlsServer {
    /// From files of PEM. With `clients`, a client needs a certificate of that authority.
    ///
    /// # Panics
    /// If a file can't be used.
    pub fn new(certificate: &Path, key: &Path, clients: Option<&Path>) -> Self {
        let provider = Arc::new(default_provider());
        let verifier = match clients {
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates(ca));
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .expect("a verifier of clients")
            }
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the default versions of TLS")
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                certificates(certificate),
                PrivateKeyDer::from_pem_file(key).expect("a private key"),
            )
            .expect("a certificate and its key");
        Self(TlsAcceptor::from(Arc::new(config)))
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .expect("certificates")
}

//! TLS in front of a stub.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
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

    /// A port that speaks TLS and passes everything on to this one, until the runtime ends.
    pub async fn in_front_of(self, port: u16) -> io::Result<u16> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let own = listener.local_addr()?.port();
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let tls = self.clone();
                // Clients that are refused, and those that disconnect, are ignored.
                tokio::spawn(async move {
                    let mut client = tls.accept(client).await?;
                    let mut server = TcpStream::connect(target).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(own)
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .expect("certificates")
}

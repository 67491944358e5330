//! HTTPS: the server's certificate, the certificates of its clients, and new files for both without a
//! restart.

mod subject;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, anyhow, bail};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub(super) use self::subject::common_name;
use crate::config::TlsSettings;

/// How often the files are looked at. They are only read if they have changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Larger files are a mistake.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a new connection gets.
pub(crate) struct Tls {
    settings: TlsSettings,
    current: RwLock<Arc<ServerConfig>>,
}

/// Changes if a file is replaced, also by a link to another one.
type Stamps = Vec<Option<(SystemTime, u64)>>;

impl Tls {
    /// Reads the files. Every error names its file.
    pub(crate) fn open(settings: &TlsSettings) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            current: RwLock::new(Arc::new(read(settings)?)),
            settings: settings.clone(),
        }))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(current.clone())
    }

    /// Uses new files for new connections, until `stop`. Files that can't be used change nothing.
    pub(super) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut known = self.stamps();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let found = self.stamps();
            if found == known {
                continue;
            }
            known = found;
            match read(&self.settings) {
                Ok(config) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                    tracing::info!("the TLS files have changed: new connections use them");
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    tracing::warn!(
                        why,
                        "the TLS files have changed and can't be used: keeping the old ones"
                    );
                }
            }
        }
    }

    fn stamps(&self) -> Stamps {
        let stamp = |file: &PathBuf| {
            let found = std::fs::metadata(file).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        let TlsSettings {
            certificate,
            key,
            client_ca,
            ..
        } = &self.settings;
        [Some(certificate), Some(key), client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(stamp)
            .collect()
    }
}

fn read(settings: &TlsSettings) -> Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&settings.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents(&settings.key)?).map_err(|_| {
        anyhow!(
            "{}: there is no private key in this PEM file",
            settings.key.display()
        )
    })?;
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.with_context(|| format!("{}: it can't be a certificate authority", file.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).with_context(|| {
        let (certificate, key) = (settings.certificate.display(), settings.key.display());
        format!("{certificate} and {key} can't be used together")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = contents(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => bail!("{}: there is no certificate in this PEM file", file.display()),
    }
}

fn contents(file: &Path) -> Result<Vec<u8>> {
    let found = || -> std::io::Result<Vec<u8>> {
        if std::fs::metadata(file)?.len() > FILE_BYTES_MAX {
            return Err(std::io::Error::other("it is too large for a PEM file"));
        }
        std::fs::read(file)
    };
    found().with_context(|| format!("{} can't be read", file.display()))
}

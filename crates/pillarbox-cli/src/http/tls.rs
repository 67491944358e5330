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
    /// Of the files that the first configuration was read from.
    first: Stamps,
}

/// Changes if a file is replaced, also by a link to another one.
type Stamps = Vec<Option<(SystemTime, u64)>>;

impl Tls {
    /// Reads the files. Every error names its file.
    pub(crate) fn open(settings: &TlsSettings) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            // Before the files are read: a file that changes meanwhile is read again.
            first: stamps(settings),
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
        let mut looks = Looks {
            used: self.first.clone(),
            told: None,
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            match self.look(&mut looks) {
                None => {}
                Some(Ok(())) => tracing::info!("the TLS files have changed: new connections use them"),
                Some(Err(why)) => {
                    tracing::warn!(
                        why,
                        "the TLS files have changed and can't be used: keeping the old ones"
                    );
                }
            }
        }
    }

    /// Reads the files if they are not those in use. Returns what is new: they are used now, or they can't be used and
    /// the log does not say so yet. Files that can't be used are read again at every look, because not every repair
    /// changes a stamp: `chmod` does not.
    fn look(&self, looks: &mut Looks) -> Option<Result<(), String>> {
        let found = stamps(&self.settings);
        if found == looks.used {
            looks.told = None;
            return None;
        }
        match read(&self.settings) {
            Ok(config) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                looks.used = found;
                looks.told = None;
                Some(Ok(()))
            }
            Err(error) => {
                let why = format!("{error:#}");
                let new = looks.told.as_ref() != Some(&why);
                looks.told = Some(why.clone());
                new.then_some(Err(why))
            }
        }
    }
}

/// What earlier looks at the files have found.
struct Looks {
    /// The stamps of the files in use.
    used: Stamps,
    /// The latest error in the log.
    told: Option<String>,
}

fn stamps(settings: &TlsSettings) -> Stamps {
    let stamp = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    let TlsSettings {
        certificate,
        key,
        client_ca,
        ..
    } = settings;
    [Some(certificate), Some(key), client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(stamp)
        .collect()
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use pillarbox_testkit::authority::Authority;

    use super::*;

    /// Writes a text of the same length and time, so that the file's stamp does not change. `chmod` does the same; it has
    /// no effect on tests that run as root.
    fn write_unnoticed(file: &Path, text: &str) {
        let before = std::fs::metadata(file).unwrap();
        let padded = format!("{text:<length$}", length = usize::try_from(before.len()).unwrap());
        std::fs::write(file, padded).unwrap();
        let times = File::options().write(true).open(file).unwrap();
        times.set_modified(before.modified().unwrap()).unwrap();
        let after = std::fs::metadata(file).unwrap();
        assert_eq!(
            (after.len(), after.modified().ok()),
            (before.len(), before.modified().ok())
        );
    }

    #[test]
    fn a_file_that_was_repaired_without_a_new_stamp_is_used_and_each_error_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        let (certificate, key) = authority.certify("localhost");
        let settings = TlsSettings {
            certificate,
            key: key.clone(),
            client_ca: None,
            client_roles: Vec::new(),
        };
        let tls = Tls::open(&settings).unwrap();
        let mut looks = Looks {
            used: tls.first.clone(),
            told: None,
        };
        let used = || Arc::as_ptr(&*tls.current.read().unwrap());
        let first = used();
        assert_eq!(tls.look(&mut looks), None, "nothing has changed");

        authority.certify("localhost");
        let good = std::fs::read_to_string(&key).unwrap();
        std::fs::write(&key, format!("{:<1000}", "no key")).unwrap();
        let why = tls.look(&mut looks).unwrap().unwrap_err();
        assert!(why.contains("no private key"), "{why}");
        assert_eq!(tls.look(&mut looks), None, "the same error is told once");
        assert_eq!(used(), first);
        write_unnoticed(&key, &good);
        assert_eq!(tls.look(&mut looks), Some(Ok(())));
        assert_ne!(used(), first);
        assert_eq!(tls.look(&mut looks), None);
    }
}

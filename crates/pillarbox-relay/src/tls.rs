//! TLS: the files that a configuration names, and errors of a handshake.
//!
//! The files are read before anything connects. Most clients read them again themselves, and their errors say little
//! if a file is missing or empty.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use thiserror::Error;

#[cfg(any(feature = "nats", feature = "mongodb"))]
/// Words of the errors that the clients pass on as text.
const WORDS: [&str; 4] = ["tls", "certificate", "fatal alert", "corrupt message"];

/// The beginning of a certificate or key that is written into an address instead of the name of its file.
pub(crate) const INLINE_PEM: &str = "-----BEGIN";

/// Whom to trust, and how to prove who we are: files of PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate authorities to trust, instead of those of the machine.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A file that can't be used. It shows nothing of the file's content.
#[derive(Debug, Error)]
#[error("{what} was expected in {}, named in {named}: {why}", path.display())]
pub struct PemError {
    what: &'static str,
    path: PathBuf,
    named: String,
    why: String,
}

/// `named` says where the file is named: `the address of NATS`.
pub(crate) fn certificates(path: &Path, named: &str) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.and_then(|found| match found.is_empty() {
        true => Err(pem::Error::NoItemsFound),
        false => Ok(found),
    });
    found.map_err(|error| bad(path, "a certificate", named, &error))
}

pub(crate) fn private_key(path: &Path, named: &str) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| bad(path, "a private key", named, &error))
}

/// For a client that reads the file itself.
#[cfg(any(
    feature = "postgres",
    feature = "mongodb",
    feature = "nats",
    feature = "kafka"
))]
pub(crate) fn certificates_file(path: PathBuf, named: &str) -> Result<PathBuf, PemError> {
    certificates(&path, named).map(|_| path)
}

/// For a client that reads the file itself.
#[cfg(any(
    feature = "postgres",
    feature = "mongodb",
    feature = "nats",
    feature = "kafka"
))]
pub(crate) fn private_key_file(path: PathBuf, named: &str) -> Result<PathBuf, PemError> {
    private_key(&path, named).map(|_| path)
}

/// Shows only those errors of the parser that contain nothing of the file.
fn bad(path: &Path, what: &'static str, named: &str, error: &pem::Error) -> PemError {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it contains none".to_owned(),
        _ => "it is not a PEM file".to_owned(),
    };
    PemError {
        what,
        path: path.to_owned(),
        named: named.to_owned(),
        why,
    }
}

#[cfg(any(feature = "nats", feature = "mongodb"))]
/// Whether a client's text is about TLS. It must not contain the name of a host.
pub(crate) fn is_about_tls(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
}

/// The error of the handshake among an error and its causes.
pub(crate) fn handshake_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An I/O error hides the error in it: `source` is that of the inner one.
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inside.and_then(|inside| inside.downcast_ref());
        if let Some(found) = found.or_else(|| error.downcast_ref()) {
            return Some(found);
        }
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_handshake_is_found_however_deep_it_is() {
        let handshake = || rustls::Error::DecryptError;
        assert!(handshake_error(&handshake()).is_some());
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, handshake()));
        assert_eq!(handshake_error(&wrapped), Some(&handshake()));
        assert!(handshake_error(&io::Error::from(io::ErrorKind::ConnectionRefused)).is_none());
    }

    #[test]
    fn an_error_about_a_file_says_where_and_why_and_shows_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours.pem");
        let missing = certificates(&path, "the address of NATS")
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("ours.pem") && missing.contains("No such file"),
            "{missing}"
        );
        for content in [
            "geheim",
            "-----BEGIN PUBLIC KEY-----\ngeheim\n-----END PUBLIC KEY-----\n",
        ] {
            std::fs::write(&path, content).unwrap();
            for error in [
                certificates(&path, "the address of NATS").map(drop).unwrap_err(),
                private_key(&path, "the address of NATS").map(drop).unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(
                    text.contains("named in the address of NATS") && !text.contains("geheim"),
                    "{text}"
                );
            }
        }
    }
}

//! Checks the certificates and keys that an address names before anything connects. The clients read the files
//! themselves, and their errors say little if a file is empty.

use std::path::{Path, PathBuf};

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

use super::{SinkError, SinkErrorKind};

/// `of` says whose address it is: `NATS`.
pub(super) fn certificates(path: PathBuf, of: &str) -> Result<PathBuf, SinkError> {
    let read = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if !found.is_empty() => Ok(path),
        Ok(_) => Err(bad(&path, "a certificate", of, &pem::Error::NoItemsFound)),
        Err(error) => Err(bad(&path, "a certificate", of, &error)),
    }
}

pub(super) fn private_key(path: PathBuf, of: &str) -> Result<PathBuf, SinkError> {
    match PrivateKeyDer::from_pem_file(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(bad(&path, "a private key", of, &error)),
    }
}

/// Shows only those errors of the parser that contain nothing of the file.
fn bad(path: &Path, what: &str, of: &str, error: &pem::Error) -> SinkError {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it contains none".to_owned(),
        _ => "it is not a PEM file".to_owned(),
    };
    SinkError::new(
        SinkErrorKind::Misconfigured,
        format!(
            "{what} was expected in {}, named in the address of {of}: {why}",
            path.display()
        ),
    )
}

//! The HTTP client for everything except stores and sinks: one TLS provider, no redirects, no proxy from the
//! environment, a limit on time and on the size of an answer.

use std::{
    error::Error as _,
    sync::{Arc, Once},
    time::Duration,
};

pub use reqwest::header::HeaderMap;
use reqwest::header::{HeaderName, HeaderValue};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use crate::tls::{self, PemError, TlsFiles};

#[derive(Debug, Error)]
pub enum HttpClientError {
    #[error("can't create the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    #[error("the TLS settings of the HTTP client are refused: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    File(#[from] PemError),
    /// The part that was read is dropped.
    #[error("the answer is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
}

/// A header that HTTP does not allow. It never shows the value, because it may be a secret.
#[derive(Debug, Error)]
pub enum HeaderError {
    #[error("{0:?} can't be the name of an HTTP header")]
    Name(String),
    #[error("the value of the header {0} contains a character that HTTP does not allow")]
    Value(String),
}

/// Headers of the configuration. Their values are secrets.
pub fn secret_headers<'a>(
    headers: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<HeaderMap, HeaderError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let known: HeaderName = name.parse().map_err(|_| HeaderError::Name(name.clone()))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| HeaderError::Value(name.clone()))?;
        value.set_sensitive(true);
        map.insert(known, value);
    }
    Ok(map)
}

/// A client with this timeout for a whole request, including its answer. It trusts the certificate authorities of the
/// machine.
pub fn client(timeout: Duration) -> Result<reqwest::Client, HttpClientError> {
    client_with(timeout, &TlsFiles::default(), "")
}

/// The same, with other authorities or a certificate. `named` says where the files are named.
pub fn client_with(
    timeout: Duration,
    files: &TlsFiles,
    named: &str,
) -> Result<reqwest::Client, HttpClientError> {
    Ok(builder(files, named)?.timeout(timeout).build()?)
}

/// For clients with more settings of their own. It has no timeout.
pub(crate) fn builder(files: &TlsFiles, named: &str) -> Result<reqwest::ClientBuilder, HttpClientError> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(ca) => {
            roots.add_parsable_certificates(tls::certificates(ca, named)?);
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            let errors = found.errors.iter().map(ToString::to_string).collect();
            if let Some(why) = no_authorities(&roots, errors) {
                WARNED.call_once(|| {
                    tracing::warn!(
                        why,
                        "this machine has no certificate authorities: HTTPS trusts nobody"
                    );
                });
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let tls = match &files.identity {
        Some((certificate, key)) => tls.with_client_auth_cert(
            tls::certificates(certificate, named)?,
            tls::private_key(key, named)?,
        )?,
        None => tls.with_no_client_auth(),
    };
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("pillarbox/", env!("CARGO_PKG_VERSION"))))
}

/// Said once: a machine without HTTPS needs no authorities.
static WARNED: Once = Once::new();

/// Why no server can be trusted. `None`: some can.
fn no_authorities(roots: &RootCertStore, errors: Vec<String>) -> Option<String> {
    let why = match errors.is_empty() {
        true => "none were found".to_owned(),
        false => errors.join("; "),
    };
    roots.is_empty().then(|| {
        format!(
            "{why}. Install them (the package ca-certificates), or name a file in SSL_CERT_FILE or in `ca`"
        )
    })
}

/// The body of an answer. An error if it is larger than `bytes_max`.
pub async fn body(mut answer: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, HttpClientError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Err(HttpClientError::TooLarge { bytes_max });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The error and its causes, without the address.
pub fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(below) = cause {
        text.push_str(&format!(": {below}"));
        cause = below.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use pillarbox_testkit::authority::Authority;

    use super::*;

    #[test]
    fn a_machine_without_certificate_authorities_is_explained() {
        let mut roots = RootCertStore::empty();
        let why = no_authorities(&roots, vec!["/etc/ssl: permission denied".into()]).unwrap();
        assert!(
            why.starts_with("/etc/ssl: permission denied") && why.contains("ca-certificates"),
            "{why}"
        );
        assert!(
            no_authorities(&roots, Vec::new())
                .unwrap()
                .starts_with("none were found")
        );
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::new(folder.path(), "ours").ca;
        roots.add_parsable_certificates(tls::certificates(&ca, "a test").unwrap());
        assert_eq!(no_authorities(&roots, vec!["one file is broken".into()]), None);
    }
}

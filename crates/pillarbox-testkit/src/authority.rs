//! Certificates for tests.

#![allow(clippy::unwrap_used, reason = "a test that has no certificates fails")]

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// A certificate authority. Its files are in one folder.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pub ca: PathBuf,
}

impl Authority {
    /// # Panics
    /// If its file can't be written.
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let ca = folder.join(format!("{name}.pem"));
        std::fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        Self {
            folder: folder.to_owned(),
            issuer: Issuer::new(params, key),
            ca,
        }
    }

    /// Issues a certificate for this host or name. Returns its file and the file of its key.
    ///
    /// # Panics
    /// If they can't be written.
    pub fn certify(&self, name: &str) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let (certificate, secret) = (
            self.folder.join(format!("{name}.crt")),
            self.folder.join(format!("{name}.key")),
        );
        std::fs::write(&certificate, signed.pem()).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        (certificate, secret)
    }
}

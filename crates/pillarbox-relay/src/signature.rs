//! Signatures by the Standard Webhooks convention: HMAC-SHA256 over id, time and body.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use thiserror::Error;

const PREFIX: &str = "whsec_";

/// A signing key. It is never displayed.
#[derive(Clone)]
pub struct Secret(hmac::Key);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretError {
    #[error("a secret begins with `whsec_`, followed by 24 to 64 bytes in base64")]
    NotOne,
    #[error(
        "the secret has {bytes} bytes: it needs 24 to 64. Use `whsec_` and the output of `openssl rand -base64 32`"
    )]
    Length { bytes: usize },
}

impl Secret {
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(SecretError::NotOne)?;
        let key = STANDARD.decode(encoded).map_err(|_| SecretError::NotOne)?;
        if !(24..=64).contains(&key.len()) {
            return Err(SecretError::Length { bytes: key.len() });
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The header `webhook-signature`: one signature for each secret, so that a receiver knows at least one of them
/// during a change of secrets.
pub(crate) fn sign(secrets: &[Secret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut signed = format!("{id}.{timestamp}.").into_bytes();
    signed.extend_from_slice(body);
    let signatures: Vec<String> = secrets
        .iter()
        .map(|secret| format!("v1,{}", STANDARD.encode(hmac::sign(&secret.0, &signed))))
        .collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example from the specification.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let header = sign(
            &[secret],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(header, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_bad_secret_is_refused_and_not_shown() {
        let long = format!("whsec_{}", STANDARD.encode([1; 65]));
        for text in [
            "",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_",
            "whsec_geheim!",
            "whsec_Z2VoZWlt",
            &long,
        ] {
            let error = Secret::parse(text).unwrap_err().to_string();
            assert!(!error.contains("geheim") && !error.contains("Z2Vo"), "{error}");
        }
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(format!("{secret:?}"), "***");
    }

    #[test]
    fn each_secret_signs() {
        let one = Secret::parse(&format!("whsec_{}", STANDARD.encode([1; 24]))).unwrap();
        let two = Secret::parse(&format!("whsec_{}", STANDARD.encode([2; 64]))).unwrap();
        let both = sign(&[one.clone(), two.clone()], "msg_1", 1, b"{}");
        assert_eq!(
            both,
            format!(
                "{} {}",
                sign(&[one], "msg_1", 1, b"{}"),
                sign(&[two], "msg_1", 1, b"{}")
            )
        );
    }
}

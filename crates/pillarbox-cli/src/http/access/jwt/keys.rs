//! The public keys of an issuer, from its JWKS (RFC 7517).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

/// An issuer has two or three.
const KEYS_MAX: usize = 100;

#[derive(Default)]
pub(super) struct Keys(Vec<Key>);

pub(super) struct Key {
    id: Option<String>,
    /// The only one for which it is used.
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Keys {
    /// Keys that are not for our use are left out: an issuer may publish any.
    pub(super) fn read(jwks: &[u8]) -> Result<Self, String> {
        let set: Set =
            serde_json::from_slice(jwks).map_err(|error| format!("this is not a JWKS: {error}"))?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!(
                "it has {} keys; the maximum is {KEYS_MAX}",
                set.keys.len()
            ));
        }
        let keys: Vec<Key> = set.keys.into_iter().filter_map(key).collect();
        match keys.is_empty() {
            true => Err("it has no key for RS, PS, ES or EdDSA signatures".into()),
            false => Ok(Self(keys)),
        }
    }

    /// A token without an id has the only key.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&Key> {
        match (id, self.0.as_slice()) {
            (Some(id), keys) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }
}

fn key(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
    let verifies = common
        .key_operations
        .as_ref()
        .is_none_or(|all| all.contains(&KeyOperations::Verify));
    if !signs || !verifies {
        return None;
    }
    Some(Key {
        algorithm: algorithm(&jwk.algorithm, common.key_algorithm)?,
        key: decoding_key(&jwk)?,
        id: jwk.common.key_id,
    })
}

/// The algorithm that the key names, if it fits its type; without a name, the usual one. Never one with a shared secret.
fn algorithm(parameters: &AlgorithmParameters, named: Option<KeyAlgorithm>) -> Option<Algorithm> {
    use AlgorithmParameters::{EllipticCurve as Curve, OctetKeyPair, RSA};
    use KeyAlgorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match (parameters, named) {
        (RSA(_), None) => Some(Algorithm::RS256),
        (RSA(_), Some(named @ (RS256 | RS384 | RS512 | PS256 | PS384 | PS512))) => named.try_into().ok(),
        (Curve(curve), None | Some(ES256)) if curve.curve == EllipticCurve::P256 => Some(Algorithm::ES256),
        (Curve(curve), None | Some(ES384)) if curve.curve == EllipticCurve::P384 => Some(Algorithm::ES384),
        (OctetKeyPair(pair), None | Some(EdDSA)) if pair.curve == EllipticCurve::Ed25519 => {
            Some(Algorithm::EdDSA)
        }
        _ => None,
    }
}

fn decoding_key(jwk: &Jwk) -> Option<DecodingKey> {
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            let number = |text: &str| URL_SAFE_NO_PAD.decode(text).ok().map(|bytes| der_number(&bytes));
            let numbers = [number(&key.n)?, number(&key.e)?].concat();
            Some(DecodingKey::from_rsa_der(&der(SEQUENCE, &numbers)))
        }
        _ => DecodingKey::from_jwk(jwk).ok(),
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;

/// A positive number. A leading bit would be its sign.
fn der_number(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = &bytes[zeros..];
    let sign: &[u8] = if digits.first().is_some_and(|byte| *byte < 0x80) {
        &[]
    } else {
        &[0]
    };
    der(INTEGER, &[sign, digits].concat())
}

fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len().to_be_bytes();
    let zeros = length.iter().take_while(|byte| **byte == 0).count();
    let digits = &length[zeros..];
    let mut bytes = vec![tag];
    match digits {
        [] => bytes.push(0),
        [short @ 0..=0x7f] => bytes.push(*short),
        // At most eight digits, so this always fits.
        long => {
            bytes.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            bytes.extend_from_slice(long);
        }
    }
    bytes.extend_from_slice(contents);
    bytes
}

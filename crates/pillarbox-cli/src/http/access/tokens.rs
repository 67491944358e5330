//! Static tokens. The configuration has their hashes, so nobody can read a token from it.

use std::collections::HashMap;

use axum::http::{HeaderMap, header};
use ring::digest::{SHA256, digest};

use super::Caller;
use crate::config::TokenSettings;

/// A JWT may have some kilobytes.
const BYTES_MAX: usize = 8 * 1024;

pub(super) struct Tokens(HashMap<[u8; 32], Caller>);

impl Tokens {
    pub(super) fn new(tokens: &[TokenSettings]) -> Self {
        let caller = |token: &TokenSettings| {
            let (project, user) = (token.project.as_deref(), token.user.as_deref());
            (
                token.sha256,
                Caller::new(&token.name, &token.roles, project, user),
            )
        };
        Self(tokens.iter().map(caller).collect())
    }

    /// Comparing hashes tells nothing about a token by the time it takes.
    pub(super) fn caller(&self, token: &str) -> Option<Caller> {
        self.0.get(&hash(token)).cloned()
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

/// What the header `Authorization` contains.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown<'a> {
    Nothing,
    Token(&'a str),
    /// Another scheme, several headers, or no text.
    Unreadable,
}

pub(super) fn shown(headers: &HeaderMap) -> Shown<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Shown::Nothing;
    };
    if values.next().is_some() || value.len() > BYTES_MAX {
        return Shown::Unreadable;
    }
    let token = value.to_str().ok().and_then(|text| text.split_once(' '));
    match token {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            Shown::Token(token.trim())
        }
        _ => Shown::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    #[test]
    fn a_token_is_found_by_its_hash() {
        let tokens = Tokens::new(&[TokenSettings {
            name: "ci".into(),
            sha256: hash("secret"),
            roles: vec![Role::Read],
            project: None,
            user: None,
        }]);
        assert_eq!(tokens.caller("secret").unwrap().name(), "ci");
        assert!(tokens.caller("Secret").is_none());
        assert!(tokens.caller("").is_none());
    }

    #[test]
    fn only_one_bearer_token_is_read() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(shown(&headers(&[])), Shown::Nothing);
        assert_eq!(shown(&headers(&["bearer  x "])), Shown::Token("x"));
        for other in [
            &["Basic eA=="][..],
            &["Bearer "],
            &["x"],
            &["Bearer a", "Bearer b"],
        ] {
            assert_eq!(shown(&headers(other)), Shown::Unreadable, "{other:?}");
        }
        let long = format!("Bearer {}", "x".repeat(BYTES_MAX));
        assert_eq!(shown(&headers(&[&long])), Shown::Unreadable);
    }
}

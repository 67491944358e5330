//! Tokens of an identity provider.

use std::{path::PathBuf, time::Duration};

use url::{Host, Url};

use super::{Problems, text, within};
use crate::config::schema;

const DAY_SECONDS: u64 = 86_400;
const LEEWAY_SECONDS_MAX: u64 = 300;

#[derive(Clone)]
pub(crate) struct JwtSettings {
    pub keys: KeySource,
    pub issuer: String,
    pub audience: String,
    pub name_claim: String,
    pub roles_claim: String,
    pub project_claim: Option<String>,
    pub user_claim: Option<String>,
    pub unscoped_claim: Option<String>,
    pub refresh: Duration,
    pub leeway: Duration,
}

#[derive(Clone)]
pub(crate) enum KeySource {
    Url(Url),
    File(PathBuf),
}

/// The keys decide who may do everything, so they must not be changed on the way.
fn address(url: &str) -> Result<Url, &'static str> {
    let url = Url::parse(url).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    match url.ok_or("this is not an address: write `https://host/path`")? {
        url if url.scheme() == "http" && !is_this_machine(&url) => Err(
            "without TLS, somebody on the way can put in keys of their own: use `https://`, or `jwks_file` if the issuer has no TLS",
        ),
        url => Ok(url),
    }
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

pub(super) fn settings(given: &schema::Jwt, problems: &mut Problems) -> Option<JwtSettings> {
    let key = |name: &str| format!("outbox.http.jwt.{name}");
    let before = problems.len();
    let keys = match (&given.jwks_url, &given.jwks_file) {
        (Some(url), None) => match address(url) {
            Ok(url) => Some(KeySource::Url(url)),
            Err(text) => {
                problems.push((key("jwks_url"), text.into()));
                None
            }
        },
        (None, Some(file)) => Some(KeySource::File(file.clone())),
        _ => {
            let text = "set `jwks_url` or `jwks_file`, and not both";
            problems.push((key("jwks_url"), text.into()));
            None
        }
    };
    let words = [
        ("issuer", Some(&given.issuer)),
        ("audience", Some(&given.audience)),
        ("name_claim", Some(&given.name_claim)),
        ("roles_claim", Some(&given.roles_claim)),
        ("project_claim", given.project_claim.as_ref()),
        ("user_claim", given.user_claim.as_ref()),
        ("unscoped_claim", given.unscoped_claim.as_ref()),
    ];
    for (name, word) in words {
        if let Some(word) = word {
            text(word, key(name), problems);
        }
    }
    if given.unscoped_claim.is_some() && given.project_claim.is_none() && given.user_claim.is_none() {
        let text = "it has no effect without `project_claim` or `user_claim`: tokens have no scope then";
        problems.push((key("unscoped_claim"), text.into()));
    }
    within(
        problems,
        key("refresh_seconds"),
        given.refresh_seconds,
        DAY_SECONDS,
    );
    // None at all is allowed.
    let leeway = given.leeway_seconds.max(1);
    within(problems, key("leeway_seconds"), leeway, LEEWAY_SECONDS_MAX);
    (problems.len() == before).then_some(())?;
    Some(JwtSettings {
        keys: keys?,
        issuer: given.issuer.clone(),
        audience: given.audience.clone(),
        name_claim: given.name_claim.clone(),
        roles_claim: given.roles_claim.clone(),
        project_claim: given.project_claim.clone(),
        user_claim: given.user_claim.clone(),
        unscoped_claim: given.unscoped_claim.clone(),
        refresh: Duration::from_secs(given.refresh_seconds),
        leeway: Duration::from_secs(given.leeway_seconds),
    })
}

//! Where the HTTP server listens, and who may use it.

mod jwt;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

pub(crate) use self::jwt::{JwtSettings, KeySource};
use super::{Problems, within};
use crate::config::schema::{self, Outbox, Role};

const TOKENS_MAX: usize = 1_000;
const HOSTS_MAX: usize = 100;
/// Names and scopes are compared, logged and stored.
const CHARS_MAX: usize = 200;
const RATE_MAX: u32 = 1_000_000;

#[derive(Clone)]
pub(crate) struct HttpSettings {
    pub listen: SocketAddr,
    /// In lower case.
    pub hosts: Vec<String>,
    pub tokens: Vec<TokenSettings>,
    pub jwt: Option<JwtSettings>,
    pub tls: Option<TlsSettings>,
    pub rate: Option<Rate>,
    pub stream_clients_max: usize,
}

#[derive(Clone)]
pub(crate) struct TokenSettings {
    pub name: Arc<str>,
    pub sha256: [u8; 32],
    pub roles: Vec<Role>,
    pub project: Option<String>,
    pub user: Option<String>,
}

#[derive(Clone)]
pub(crate) struct TlsSettings {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
    pub client_roles: Vec<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

impl HttpSettings {
    /// Whether a caller must say who it is.
    pub(crate) fn needs_credentials(&self) -> bool {
        let by_certificate = self.tls.as_ref().is_some_and(|tls| !tls.client_roles.is_empty());
        !self.tokens.is_empty() || self.jwt.is_some() || by_certificate
    }

    /// What is allowed and probably not intended.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.listen.ip().is_loopback() && self.tls.is_none() {
            warnings.push(format!(
                "`outbox.http.listen`: {} can be reached from other machines without TLS, so tokens and events can be read on the way. Set `outbox.http.tls`, or put a proxy with TLS in front",
                self.listen
            ));
        }
        warnings
    }
}

pub(super) fn settings(outbox: &Outbox, problems: &mut Problems) -> HttpSettings {
    let given = &outbox.http;
    let settings = HttpSettings {
        listen: given.listen,
        hosts: hosts(&given.hosts, problems),
        tokens: tokens(&given.tokens, problems),
        jwt: given
            .jwt
            .as_ref()
            .and_then(|given| jwt::settings(given, problems)),
        tls: given.tls.as_ref().map(|given| tls(given, problems)),
        rate: rate(&given.rate_limit, problems),
        stream_clients_max: given.stream_clients_max as usize,
    };
    within(
        problems,
        "outbox.http.stream_clients_max".into(),
        given.stream_clients_max,
        100_000,
    );
    if !given.listen.ip().is_loopback() {
        reachable(given, &settings, problems);
    }
    settings
}

/// What an address needs that other machines can reach.
fn reachable(given: &schema::Http, settings: &HttpSettings, problems: &mut Problems) {
    let listen = given.listen;
    let key = || "outbox.http.listen".to_owned();
    let by_certificate = given.tls.as_ref().is_some_and(|tls| !tls.client_roles.is_empty());
    if given.tokens.is_empty() && given.jwt.is_none() && !by_certificate {
        let text = format!(
            "{listen} can be reached from other machines, so callers need tokens: set `tokens` (`pillarbox token new` makes one) or `jwt`, or listen at 127.0.0.1 or [::1]"
        );
        problems.push((key(), text));
    }
    if settings.hosts.is_empty() && listen.ip().is_unspecified() {
        let text = format!(
            "{listen} stands for every address of this machine: list the names under which clients reach it in `hosts`"
        );
        problems.push((key(), text));
    }
}

fn hosts(given: &[String], problems: &mut Problems) -> Vec<String> {
    let key = "outbox.http.hosts";
    if given.len() > HOSTS_MAX {
        problems.push((key.into(), format!("the maximum is {HOSTS_MAX} names")));
    }
    let is_name = |name: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.len() <= 253
            && !name.is_empty()
            && (name.bytes().all(plain) || address.parse::<std::net::Ipv6Addr>().is_ok())
    };
    for (index, name) in given.iter().enumerate() {
        if !is_name(name) {
            let text =
                "this is not a name: write `pillarbox.example.com`, without `https://`, a port or a path";
            problems.push((format!("{key}.{index}"), text.into()));
        }
    }
    given.iter().map(|name| name.to_ascii_lowercase()).collect()
}

fn tokens(given: &[schema::Token], problems: &mut Problems) -> Vec<TokenSettings> {
    if given.len() > TOKENS_MAX {
        let text = format!("the maximum is {TOKENS_MAX} tokens: use `jwt` for more");
        problems.push(("outbox.http.tokens".into(), text));
    }
    let mut tokens: Vec<TokenSettings> = Vec::new();
    for (index, token) in given.iter().enumerate() {
        let key = |name: &str| format!("outbox.http.tokens.{index}.{name}");
        text(&token.name, key("name"), problems);
        if token.name.contains(':') {
            let text = "it must not contain `:`, because names of other callers begin with `jwt:` or `cert:`";
            problems.push((key("name"), text.into()));
        }
        for (scope, name) in [(&token.project, "project"), (&token.user, "user")] {
            if let Some(scope) = scope {
                text(scope, key(name), problems);
            }
        }
        roles(&token.roles, key("roles"), problems);
        let scoped = token.project.is_some() || token.user.is_some();
        if scoped && token.roles.contains(&Role::Operate) {
            let text = "`operate` can't be limited to a project or a user: leave out `project` and `user`, or `operate`";
            problems.push((key("roles"), text.into()));
        }
        let Some(sha256) = hash(&token.sha256) else {
            // The value may be the token itself.
            let text = "this is not a SHA-256 in hexadecimal (64 digits): `pillarbox token new` prints one";
            problems.push((key("sha256"), text.into()));
            continue;
        };
        if tokens.iter().any(|other| other.sha256 == sha256) {
            problems.push((key("sha256"), "another token has the same hash".into()));
        }
        if tokens.iter().any(|other| *other.name == *token.name) {
            problems.push((key("name"), "another token has the same name".into()));
        }
        tokens.push(TokenSettings {
            name: token.name.as_str().into(),
            sha256,
            roles: token.roles.clone(),
            project: token.project.clone(),
            user: token.user.clone(),
        });
    }
    tokens
}

fn roles(roles: &[Role], key: String, problems: &mut Problems) {
    if roles.is_empty() {
        problems.push((key, "name at least one of `produce`, `read` and `operate`".into()));
    }
}

fn text(text: &str, key: String, problems: &mut Problems) {
    let chars = text.chars().count();
    if chars == 0 || chars > CHARS_MAX || text.chars().any(char::is_control) {
        problems.push((
            key,
            format!("it must have 1 to {CHARS_MAX} characters, and no control characters"),
        ));
    }
}

fn hash(hexadecimal: &str) -> Option<[u8; 32]> {
    let digits = hexadecimal.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(hash)
}

fn tls(given: &schema::Tls, problems: &mut Problems) -> TlsSettings {
    if given.client_ca.is_none() && !given.client_roles.is_empty() {
        let text = "a client shows a certificate only if `client_ca` is set";
        problems.push(("outbox.http.tls.client_roles".into(), text.into()));
    }
    TlsSettings {
        certificate: given.certificate.clone(),
        key: given.key.clone(),
        client_ca: given.client_ca.clone(),
        client_roles: given.client_roles.clone(),
    }
}

fn rate(given: &schema::RateLimit, problems: &mut Problems) -> Option<Rate> {
    let key = |name: &str| format!("outbox.http.rate_limit.{name}");
    let per_second = given.requests_per_second;
    if per_second == 0 {
        if given.burst.is_some() {
            let text = "it has no effect without `requests_per_second`";
            problems.push((key("burst"), text.into()));
        }
        return None;
    }
    within(problems, key("requests_per_second"), per_second, RATE_MAX.into());
    let burst = given.burst.unwrap_or(per_second.saturating_mul(2).min(RATE_MAX));
    within(problems, key("burst"), burst, RATE_MAX.into());
    Some(Rate { per_second, burst })
}

//! The HTTP server: where it listens, who may use it, and how much.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Http {
    /// An address and a port; port 0 takes a free one. An address that other machines can reach needs
    /// `tokens`, `jwt` or `tls.client_roles`; `0.0.0.0` and `[::]` also need `hosts`. `run --no-http` serves
    /// nothing.
    pub listen: SocketAddr,
    /// The names or addresses under which clients reach it: `pillarbox.example.com`, without a port. A request
    /// to another name is refused; the names of this machine itself are always accepted.
    pub hosts: Vec<String>,
    /// Static tokens, at most 1,000. [API.md](API.md#tokens) says how to make one.
    pub tokens: Vec<Token>,
    /// Tokens that an identity provider signs.
    pub jwt: Option<Jwt>,
    /// Serve HTTPS.
    pub tls: Option<Tls>,
    /// How many requests a caller may send.
    pub rate_limit: RateLimit,
    /// How many clients may follow `/v1/stream` at this relay.
    pub stream_clients_max: u32,
}

/// What a caller may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Produce,
    Read,
    Operate,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The caller's name in the log and in the history of dead letters. It has no `:`.
    pub name: String,
    /// The SHA-256 of the token, in hexadecimal. `pillarbox token new` prints it. The token itself is not in
    /// the configuration.
    pub sha256: String,
    /// Any of `produce`, `read` and `operate` (which includes `read`).
    pub roles: Vec<Role>,
    /// Only events of this project.
    #[serde(default)]
    #[schemars(extend("x-default" = "all"))]
    pub project: Option<String>,
    /// Only events of this user.
    #[serde(default)]
    #[schemars(extend("x-default" = "all"))]
    pub user: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jwt {
    /// Where the issuer publishes its public keys. `http://` is allowed on this machine only.
    #[serde(default)]
    #[schemars(extend("x-default" = "this or `jwks_file` is required"))]
    pub jwks_url: Option<String>,
    /// A file with these keys instead.
    #[serde(default)]
    #[schemars(extend("x-default" = "this or `jwks_url` is required"))]
    pub jwks_file: Option<PathBuf>,
    /// The claim `iss` must be this.
    pub issuer: String,
    /// The claim `aud` must contain this.
    pub audience: String,
    /// The claim with the caller's name. In the log and in the history of dead letters it gets the prefix
    /// `jwt:`.
    #[serde(default = "name_claim")]
    pub name_claim: String,
    /// The claim with the roles: a list, or text with spaces. Dots lead into objects: `realm_access.roles`.
    /// Other words in it are ignored.
    #[serde(default = "roles_claim")]
    pub roles_claim: String,
    /// The claim with the project. If it is set, a token without the claim is refused.
    #[serde(default)]
    #[schemars(extend("x-default" = "none: all projects"))]
    pub project_claim: Option<String>,
    /// The claim with the user, in the same way.
    #[serde(default)]
    #[schemars(extend("x-default" = "none: all users"))]
    pub user_claim: Option<String>,
    /// A claim that lifts both limits for a token in which it is the boolean `true`. Only the issuer may be able
    /// to set it.
    #[serde(default)]
    #[schemars(extend("x-default" = "none: no token is without limits"))]
    pub unscoped_claim: Option<String>,
    /// How often the keys are read again. A token with an unknown key does it at once, at most every 30
    /// seconds.
    #[serde(default = "refresh_seconds")]
    pub refresh_seconds: u64,
    /// How far the clocks may differ; 300 at most.
    #[serde(default = "leeway_seconds")]
    pub leeway_seconds: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// A PEM file: the server's certificate, then those between it and the root.
    pub certificate: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
    /// A PEM file with certificate authorities. If it is set, every client needs a certificate of one of
    /// them.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// The roles of a client with a certificate and without a token. Its name is `cert:` and the
    /// common name of the certificate's subject.
    #[serde(default)]
    pub client_roles: Vec<Role>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RateLimit {
    /// How many requests each caller may send in a second, over time. 0: no limit.
    pub requests_per_second: u32,
    /// How many of them may come at once.
    #[schemars(extend("x-default" = "twice `requests_per_second`"))]
    pub burst: Option<u32>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            hosts: Vec::new(),
            tokens: Vec::new(),
            jwt: None,
            tls: None,
            rate_limit: RateLimit::default(),
            stream_clients_max: 2_500,
        }
    }
}

fn name_claim() -> String {
    "sub".into()
}

fn roles_claim() -> String {
    "roles".into()
}

fn refresh_seconds() -> u64 {
    300
}

fn leeway_seconds() -> u64 {
    30
}

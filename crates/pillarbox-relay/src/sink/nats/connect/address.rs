//! An address: servers and credentials. The secrets are removed from the servers' addresses here, because the client
//! writes the addresses into its log.

use std::path::PathBuf;

use async_nats::{ConnectOptions, ServerAddr};
use url::Url;

use super::super::outcome::misconfigured;
use crate::{driver::address::servers, sink::SinkError, tls};

/// Where files are named, for errors.
const NAMED: &str = "the address of NATS";

pub(in super::super) struct Address {
    pub(in super::super) servers: Vec<ServerAddr>,
    /// Without secrets.
    pub(in super::super) shown: String,
    login: Login,
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, PartialEq)]
enum Login {
    Nobody,
    Token(String),
    User {
        name: String,
        password: String,
    },
    /// The content of a creds file.
    Credentials(String),
}

impl Address {
    pub(in super::super) fn parse(text: &str) -> Result<Self, SinkError> {
        let query = text.split_once('?').map_or("", |(_, query)| query);
        let mut address = Self {
            servers: Vec::new(),
            shown: String::new(),
            login: Login::Nobody,
            ca: None,
            certificate: None,
        };
        for server in servers(text) {
            address.add(&server)?;
        }
        if address.servers.is_empty() {
            return Err(misconfigured(
                "the address of NATS contains no server. Write nats://host:port",
            ));
        }
        address.settings(query)?;
        Ok(address)
    }

    fn add(&mut self, server: &str) -> Result<(), SinkError> {
        // Do not show the text: it may contain a password.
        let bad = || misconfigured("the address of NATS can't be read. Write nats://user:password@host:port");
        let mut url = Url::parse(server).map_err(|_| bad())?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad());
        }
        let login = login(&url);
        if login != Login::Nobody {
            if self.login != Login::Nobody && self.login != login {
                return Err(misconfigured(
                    "the servers of one NATS address must share one user",
                ));
            }
            self.login = login;
        }
        url.set_username("")
            .and(url.set_password(None))
            .map_err(|()| bad())?;
        let separator = if self.shown.is_empty() { "" } else { "," };
        self.shown = format!("{}{separator}{}", self.shown, url.as_str().trim_end_matches('/'));
        self.servers.push(ServerAddr::from_url(url).map_err(|_| bad())?);
        Ok(())
    }

    fn settings(&mut self, query: &str) -> Result<(), SinkError> {
        let (mut certificate, mut key) = (None, None);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            // Do not show the value: it may be a password in the wrong place.
            if !["creds", "ca", "cert", "key"].contains(&name.as_ref()) {
                return Err(misconfigured(format!(
                    "`{name}` is not a setting of a NATS address. The settings are creds, ca, cert and key"
                )));
            }
            let path = PathBuf::from(value.as_ref());
            if !path.is_file() {
                return Err(misconfigured(format!(
                    "{name}={value} in the address of NATS is not a file"
                )));
            }
            match name.as_ref() {
                "creds" => {
                    let text = std::fs::read_to_string(&path).map_err(|error| {
                        misconfigured(format!("can't read the creds file {value}: {error}"))
                    })?;
                    self.login = Login::Credentials(text);
                }
                "ca" => self.ca = Some(tls::certificates_file(path, NAMED)?),
                "cert" => certificate = Some(tls::certificates_file(path, NAMED)?),
                _ => key = Some(tls::private_key_file(path, NAMED)?),
            }
        }
        self.certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(misconfigured(
                    "the address of NATS needs both cert and key, or neither",
                ));
            }
        };
        Ok(())
    }

    pub(in super::super) fn authenticate(
        &self,
        options: ConnectOptions,
    ) -> Result<ConnectOptions, SinkError> {
        let mut options = match self.login.clone() {
            Login::Nobody => options,
            Login::Token(token) => options.token(token),
            Login::User { name, password } => options.user_and_password(name, password),
            Login::Credentials(text) => options
                .credentials(&text)
                .map_err(|error| misconfigured(format!("the creds file can't be used: {error}")))?,
        };
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((certificate, key)) = &self.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }
}

/// A user without a password is a token, as everywhere in NATS.
fn login(url: &Url) -> Login {
    let decoded = |text: &str| {
        let pairs = text.replace('+', "%2B");
        url::form_urlencoded::parse(pairs.as_bytes())
            .next()
            .map_or(String::new(), |(text, _)| text.into_owned())
    };
    match (url.username(), url.password()) {
        ("", None) => Login::Nobody,
        (token, None) => Login::Token(decoded(token)),
        (name, Some(password)) => Login::User {
            name: decoded(name),
            password: decoded(password),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_leave_the_address() {
        let address = Address::parse("nats://app:s%40cret+@a:4222,b").unwrap();
        assert_eq!(address.shown, "nats://a:4222,nats://b");
        assert!(
            address.login
                == Login::User {
                    name: "app".into(),
                    password: "s@cret+".into()
                }
        );
        assert!(
            address
                .servers
                .iter()
                .all(|server| !format!("{server:?}").contains("cret"))
        );
        assert!(Address::parse("nats://t0ken@a").unwrap().login == Login::Token("t0ken".into()));
    }

    #[test]
    fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
        for bad in [
            "nats://",
            "nats://app:secret@:x",
            "nats://a:secret@h?colour=Cargo.toml",
            "nats://h?creds=/none",
        ] {
            let error = Address::parse(bad)
                .err()
                .unwrap_or_else(|| panic!("{bad} was taken"));
            assert!(!error.message.contains("secret"), "{error}");
        }
        assert!(Address::parse("nats://a:x@h,nats://b:y@i").is_err());
    }

    #[test]
    fn a_file_with_the_wrong_content_is_refused_before_connecting() {
        for setting in ["ca", "cert", "key"] {
            let url = format!("tls://h?{setting}=Cargo.toml");
            let error = Address::parse(&url)
                .err()
                .unwrap_or_else(|| panic!("{url} was taken"));
            assert!(error.message.contains("expected in Cargo.toml"), "{error}");
        }
    }
}

//! An address: brokers, credentials, and how to send. Its secrets go only into the client's settings.

use std::path::{Path, PathBuf};

use rdkafka::ClientConfig;
use url::Url;
use uuid::Uuid;

use super::outcome::misconfigured;
use crate::{driver::address::servers, sink::SinkError, tls};

/// Where files are named, for errors.
const NAMED: &str = "the address of Kafka";
const SETTINGS: &str = "ca, cert, key, tls, sasl, password_file, compression, linger_ms, queue_events_max, \
                        transactions and transactional_id";
/// How long an event may wait for others in the same request. A request costs the broker far more than an event in it.
/// Measured with `bench drain`, six partitions, five batches of 200 in flight, two cores shared by all, in events/s:
/// 38,000 with 2 ms (the broker spends 28 µs on an event), 50,000 with 5 ms, 39,000 with 10 ms, which is too long for
/// 1,000 events in flight.
const LINGER_MS: u32 = 5;
const PASSWORD_FILE_BYTES_MAX: u64 = 4096;

pub(super) struct Address {
    /// `host:port,host:port`: for the client, and for messages.
    pub(super) brokers: String,
    login: Option<Login>,
    tls: Option<Tls>,
    pub(super) compression: Compression,
    pub(super) linger_ms: u32,
    /// The most events in the client. More wait for room.
    pub(super) queue_events_max: u32,
    /// Set in the transactional mode.
    pub(super) transactional_id: Option<String>,
}

struct Login {
    mechanism: &'static str,
    user: String,
    password: String,
}

#[derive(Default)]
struct Tls {
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// The query, before it is validated as a whole.
#[derive(Default)]
struct Asked {
    tls: Option<bool>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    mechanism: Option<&'static str>,
    password: Option<String>,
    transactions: Option<bool>,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, SinkError> {
        let mut address = Self {
            brokers: String::new(),
            login: None,
            tls: None,
            compression: Compression::Lz4,
            linger_ms: LINGER_MS,
            queue_events_max: 100_000,
            transactional_id: None,
        };
        let mut user = None;
        for server in servers(text) {
            address.add(&server, &mut user)?;
        }
        if address.brokers.is_empty() {
            return Err(misconfigured(
                "the address of Kafka contains no broker. Write kafka://host:port",
            ));
        }
        let query = text.split_once('?').map_or("", |(_, query)| query);
        let mut asked = Asked::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            address.setting(&mut asked, &name, &value)?;
        }
        address.tls = asked.tls()?;
        address.login = asked.login(user)?;
        if asked.transactions == Some(false) {
            address.transactional_id = None;
        } else if asked.transactions == Some(true) && address.transactional_id.is_none() {
            // Different for each process. If two share one, the later one fences the earlier one.
            address.transactional_id = Some(format!("pillarbox-{}", Uuid::now_v7()));
        }
        Ok(address)
    }

    fn add(&mut self, server: &str, user: &mut Option<(String, Option<String>)>) -> Result<(), SinkError> {
        // Do not show the text: it may contain a password.
        let bad =
            || misconfigured("the address of Kafka can't be read. Write kafka://user:password@host:port");
        let url = Url::parse(server).map_err(|_| bad())?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(bad());
        }
        if !url.username().is_empty() || url.password().is_some() {
            let this = (decoded(url.username()), url.password().map(decoded));
            if user.as_ref().is_some_and(|known| *known != this) {
                return Err(misconfigured(
                    "the brokers of one Kafka address must share one user",
                ));
            }
            *user = Some(this);
        }
        let separator = if self.brokers.is_empty() { "" } else { "," };
        let port = url.port().unwrap_or(9092);
        self.brokers.push_str(&format!("{separator}{host}:{port}"));
        Ok(())
    }

    fn setting(&mut self, asked: &mut Asked, name: &str, value: &str) -> Result<(), SinkError> {
        match name {
            "ca" => asked.ca = Some(tls::certificates_file(file(name, value)?, NAMED)?),
            "cert" => asked.certificate = Some(tls::certificates_file(file(name, value)?, NAMED)?),
            "key" => asked.key = Some(tls::private_key_file(file(name, value)?, NAMED)?),
            "tls" => asked.tls = Some(yes_or_no(name, value)?),
            "sasl" => asked.mechanism = Some(mechanism(value)?),
            "password_file" => asked.password = Some(password(&file(name, value)?)?),
            "compression" => self.compression = compression(value)?,
            "linger_ms" => self.linger_ms = number(name, value, 0, 1_000)?,
            "queue_events_max" => self.queue_events_max = number(name, value, 1, 10_000_000)?,
            "transactions" => asked.transactions = Some(yes_or_no(name, value)?),
            "transactional_id" if !value.is_empty() && value.len() <= 200 && !value.contains('\0') => {
                self.transactional_id = Some(value.to_owned());
            }
            "transactional_id" => {
                return Err(misconfigured(
                    "transactional_id in the address of Kafka must have 1 to 200 characters",
                ));
            }
            // Do not show the value: it may be a password in the wrong place.
            _ => {
                let name: String = name.chars().take(40).collect();
                return Err(misconfigured(format!(
                    "`{name}` is not a setting of a Kafka address. The settings are {SETTINGS}"
                )));
            }
        }
        Ok(())
    }

    /// Writes the credentials and the kind of connection into the client's settings.
    pub(super) fn connect(&self, config: &mut ClientConfig) {
        config.set("bootstrap.servers", &self.brokers);
        let protocol = match (&self.login, &self.tls) {
            (None, None) => "plaintext",
            (None, Some(_)) => "ssl",
            (Some(_), None) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(login) = &self.login {
            config.set("sasl.mechanism", login.mechanism);
            config.set("sasl.username", &login.user);
            config.set("sasl.password", &login.password);
        }
        if let Some(tls) = &self.tls {
            let ca = tls.ca.as_ref().map(|path| path.to_string_lossy());
            config.set("ssl.ca.location", ca.as_deref().unwrap_or("probe"));
            if let Some((certificate, key)) = &tls.certificate {
                config.set("ssl.certificate.location", certificate.to_string_lossy());
                config.set("ssl.key.location", key.to_string_lossy());
            }
        }
    }
}

impl Asked {
    fn tls(&mut self) -> Result<Option<Tls>, SinkError> {
        let certificate = match (self.certificate.take(), self.key.take()) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(misconfigured(
                    "the address of Kafka needs both cert and key, or neither",
                ));
            }
        };
        let named = self.ca.is_some() || certificate.is_some();
        match self.tls {
            Some(false) if named => Err(misconfigured(
                "the address of Kafka names certificates and says tls=false: remove one of them",
            )),
            None if !named => Ok(None),
            Some(false) => Ok(None),
            _ => Ok(Some(Tls {
                ca: self.ca.take(),
                certificate,
            })),
        }
    }

    fn login(&mut self, user: Option<(String, Option<String>)>) -> Result<Option<Login>, SinkError> {
        let Some((user, written)) = user else {
            return match (&self.mechanism, &self.password) {
                (None, None) => Ok(None),
                _ => Err(misconfigured(
                    "the address of Kafka has sasl or password_file, but no user. Write kafka://user@host:port",
                )),
            };
        };
        let password = match (written, self.password.take()) {
            (Some(_), Some(_)) => {
                return Err(misconfigured(
                    "the address of Kafka has a password and a password_file: remove one of them",
                ));
            }
            (Some(password), None) | (None, Some(password)) => password,
            (None, None) => {
                return Err(misconfigured(
                    "the address of Kafka has a user, but no password. Add password_file=FILE, or write \
                     kafka://user:password@host:port",
                ));
            }
        };
        if user.is_empty() || password.is_empty() || user.contains('\0') || password.contains('\0') {
            return Err(misconfigured("a user of Kafka needs a name and a password"));
        }
        Ok(Some(Login {
            mechanism: self.mechanism.unwrap_or("PLAIN"),
            user,
            password,
        }))
    }
}

fn file(name: &str, value: &str) -> Result<PathBuf, SinkError> {
    let path = PathBuf::from(value);
    match path.is_file() {
        true => Ok(path),
        false => Err(misconfigured(format!(
            "{name}={value} in the address of Kafka is not a file"
        ))),
    }
}

/// The content of the file without its last line break.
fn password(path: &Path) -> Result<String, SinkError> {
    let shown = path.display();
    let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
    if bytes > PASSWORD_FILE_BYTES_MAX {
        return Err(misconfigured(format!(
            "the password_file {shown} has {bytes} bytes: this can't be a password"
        )));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| misconfigured(format!("can't read the password_file {shown}: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn mechanism(value: &str) -> Result<&'static str, SinkError> {
    match value.to_ascii_lowercase().as_str() {
        "plain" => Ok("PLAIN"),
        "scram-sha-256" => Ok("SCRAM-SHA-256"),
        "scram-sha-512" => Ok("SCRAM-SHA-512"),
        _ => Err(misconfigured(
            "sasl in the address of Kafka must be plain, scram-sha-256 or scram-sha-512",
        )),
    }
}

fn compression(value: &str) -> Result<Compression, SinkError> {
    use Compression::*;
    [None, Gzip, Snappy, Lz4, Zstd]
        .into_iter()
        .find(|known| known.name() == value)
        .ok_or_else(|| {
            misconfigured("compression in the address of Kafka must be none, gzip, snappy, lz4 or zstd")
        })
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, SinkError> {
    value
        .parse()
        .map_err(|_| misconfigured(format!("{name} in the address of Kafka must be true or false")))
}

fn number(name: &str, value: &str, min: u32, max: u32) -> Result<u32, SinkError> {
    value
        .parse()
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| {
            misconfigured(format!(
                "{name} in the address of Kafka must be a number from {min} to {max}"
            ))
        })
}

fn decoded(text: &str) -> String {
    let pairs = text.replace('+', "%2B");
    url::form_urlencoded::parse(pairs.as_bytes())
        .next()
        .map_or(String::new(), |(text, _)| text.into_owned())
}

#[cfg(test)]
mod tests;

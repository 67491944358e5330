//! The list of databases and sinks.
//!
//! Each one describes itself in a `driver.rs` in its own folder. That file is compiled even if the rest is left out of
//! the build, so that an address of a kind that is not built in gets a useful error. Configuration, help, errors,
//! redaction and the bench use this list. docs/EXTENDING.md shows how to add one.

pub mod address;
#[path = "sink/file/driver.rs"]
mod file;
#[path = "sink/http_stream/driver.rs"]
mod http_stream;
#[path = "sink/kafka/driver.rs"]
mod kafka;
#[path = "store/mongodb/driver.rs"]
mod mongodb;
#[path = "sink/nats/driver.rs"]
mod nats;
#[path = "sink/null/driver.rs"]
mod null;
#[path = "store/postgres/driver.rs"]
mod postgres;
#[path = "store/sqlite/driver.rs"]
mod sqlite;
#[path = "sink/stdout/driver.rs"]
mod stdout;
#[path = "sink/webhook/driver.rs"]
mod webhook;

use crate::{
    connect::{DatabaseOptions, OpenSink, OpenStore, SinkOptions},
    sink::SinkError,
    store::StoreError,
};

/// All kinds of sinks, in the order of help and errors.
pub static SINKS: &[&SinkDriver] = &[
    &nats::DRIVER,
    &kafka::DRIVER,
    &webhook::DRIVER,
    &http_stream::DRIVER,
    &file::DRIVER,
    &stdout::DRIVER,
    &null::DRIVER,
];

/// All kinds of databases.
pub static STORES: &[&StoreDriver] = &[&postgres::DRIVER, &mongodb::DRIVER, &sqlite::DRIVER];

/// What sinks and databases have in common.
pub struct About {
    /// The kind, in lower case: `nats`. Never shown to users as a name.
    pub kind: &'static str,
    /// The name for people: `NATS JetStream`.
    pub name: &'static str,
    /// The part of its addresses before the colon.
    pub schemes: &'static [&'static str],
    /// For help and errors.
    pub example: &'static str,
    /// What is behind such an address, for the documentation of the configuration.
    pub summary: &'static str,
    /// The cargo feature, of this crate and of the binary, that builds it in. `None`: always built in.
    pub feature: Option<&'static str>,
    /// Whether an address of these schemes can be parsed. The error never shows the address, because it may contain a
    /// password.
    pub check: fn(&str) -> Result<(), String>,
    /// The address without secrets, for people.
    pub redact: fn(&str) -> String,
}

/// Opens a sink without waiting for a connection.
pub type SinkOpener = fn(&SinkOptions) -> Result<OpenSink, SinkError>;

/// Opens a store without connecting.
pub type StoreOpener = fn(&DatabaseOptions) -> Result<OpenStore, StoreError>;

/// A kind of sink.
pub struct SinkDriver {
    pub about: About,
    /// What the configuration can require to exist there.
    pub provisions: Option<Provisions>,
    /// `None`: not built in.
    pub open: Option<SinkOpener>,
}

/// A kind of database.
pub struct StoreDriver {
    pub about: About,
    /// Whether relays can share the work by locking events instead of lanes.
    pub claims_rows: bool,
    /// `None`: not built in.
    pub open: Option<StoreOpener>,
}

/// What the configuration can require to exist at a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisions {
    /// `outbox.streams`
    Streams,
    /// `outbox.topics`
    Topics,
}

impl Provisions {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Topics => "topics",
        }
    }
}

impl About {
    fn has(&self, scheme: &str) -> bool {
        self.schemes.contains(&scheme)
    }

    /// The error for an address of this kind if it is not built in.
    pub fn missing(&self) -> String {
        let feature = self.feature.unwrap_or("full");
        format!(
            "this build has no {}. Build one that has: cargo build --release --features {feature}",
            self.name
        )
    }
}

/// The kind of sink for this address.
pub fn sink(url: &str) -> Option<&'static SinkDriver> {
    let scheme = address::scheme(url);
    SINKS.iter().copied().find(|driver| driver.about.has(scheme))
}

/// The kind of database for this address.
pub fn store(url: &str) -> Option<&'static StoreDriver> {
    let scheme = address::scheme(url);
    STORES.iter().copied().find(|driver| driver.about.has(scheme))
}

/// Examples of the sinks' addresses, for help and errors: `nats://host:4222, kafka://host:9092 or stdout:`.
pub fn sink_examples() -> String {
    listed(SINKS.iter().map(|driver| &driver.about))
}

/// Examples of the databases' addresses.
pub fn store_examples() -> String {
    listed(STORES.iter().map(|driver| &driver.about))
}

/// Each sink's example with its summary, as the documentation of the configuration lists them.
pub fn sink_summaries() -> String {
    summaries(SINKS.iter().map(|driver| &driver.about))
}

/// The same of the databases.
pub fn store_summaries() -> String {
    summaries(STORES.iter().map(|driver| &driver.about))
}

fn summaries<'a>(drivers: impl Iterator<Item = &'a About>) -> String {
    let each = drivers.map(|about| format!("`{}`: {}.", about.example, about.summary));
    each.collect::<Vec<_>>().join(" ")
}

fn listed<'a>(drivers: impl Iterator<Item = &'a About>) -> String {
    let examples: Vec<&str> = drivers.map(|about| about.example).collect();
    match examples.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => examples.concat(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn all() -> Vec<&'static About> {
        let sinks = SINKS.iter().map(|driver| &driver.about);
        sinks.chain(STORES.iter().map(|driver| &driver.about)).collect()
    }

    #[test]
    fn a_scheme_belongs_to_one_driver() {
        let schemes: Vec<&str> = all().iter().flat_map(|about| about.schemes).copied().collect();
        let unique: HashSet<&str> = schemes.iter().copied().collect();
        assert_eq!(unique.len(), schemes.len(), "{schemes:?}");
    }

    #[test]
    fn every_example_is_an_address_of_its_driver() {
        for about in all() {
            assert!(about.has(address::scheme(about.example)), "{}", about.example);
            assert_eq!((about.check)(about.example), Ok(()), "{}", about.example);
        }
    }

    #[test]
    fn a_left_out_driver_is_named_with_the_command_that_builds_it() {
        let kafka = sink("kafka://a:9092").map(|driver| driver.about.missing());
        assert_eq!(
            kafka.as_deref(),
            Some("this build has no Kafka. Build one that has: cargo build --release --features kafka")
        );
        assert!(sink("amqp://a").is_none() && store("nats://a").is_none());
    }

    #[test]
    fn examples_read_as_a_sentence() {
        assert_eq!(
            store_examples(),
            "postgres://user@host/database, mongodb://host/database or sqlite:path"
        );
    }
}

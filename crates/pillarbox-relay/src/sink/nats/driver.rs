//! The driver of the NATS JetStream sink.

use crate::driver::{About, Provisions, SinkDriver, address};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "nats",
        name: "NATS JetStream",
        schemes: &["nats", "tls"],
        example: "nats://host:4222",
        summary: "NATS JetStream (or `tls://…`)",
        feature: Some("nats"),
        check: address::check_servers,
        // A user without a password is a token.
        redact: |url| address::redact_servers(url, true),
    },
    provisions: Some(Provisions::Streams),
    #[cfg(feature = "nats")]
    open: Some(|options| {
        let sink = std::sync::Arc::new(crate::sink::nats::NatsSink::open(options)?);
        Ok(crate::connect::OpenSink {
            streams: Some(sink.clone()),
            ..crate::connect::OpenSink::new("nats", sink)
        })
    }),
    #[cfg(not(feature = "nats"))]
    open: None,
};

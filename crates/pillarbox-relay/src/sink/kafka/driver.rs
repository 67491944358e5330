//! The driver of the Kafka sink.

use crate::driver::{About, Provisions, SinkDriver, address};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "kafka",
        name: "Kafka",
        schemes: &["kafka"],
        example: "kafka://host:9092",
        summary: "Kafka",
        feature: Some("kafka"),
        check: address::check_servers,
        redact: |url| address::redact_servers(url, false),
    },
    provisions: Some(Provisions::Topics),
    #[cfg(feature = "kafka")]
    open: Some(|options| {
        let sink = std::sync::Arc::new(crate::sink::kafka::KafkaSink::open(options)?);
        Ok(crate::connect::OpenSink {
            streams: Some(sink.clone()),
            ..crate::connect::OpenSink::new("kafka", sink)
        })
    }),
    #[cfg(not(feature = "kafka"))]
    open: None,
};

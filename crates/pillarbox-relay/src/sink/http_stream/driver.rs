//! The driver of the HTTP stream.

use crate::driver::{About, SinkDriver, address};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "http-stream",
        name: "HTTP stream",
        schemes: &["http-stream"],
        example: "http-stream:",
        summary: "the event log, which every relay serves at `/v1/stream`",
        feature: Some("http-stream"),
        check: address::check_nothing,
        redact: address::redact_one,
    },
    provisions: None,
    #[cfg(feature = "http-stream")]
    open: Some(|_| {
        let sink = std::sync::Arc::new(crate::sink::http_stream::HttpStream);
        Ok(crate::connect::OpenSink::new("http-stream", sink))
    }),
    #[cfg(not(feature = "http-stream"))]
    open: None,
};

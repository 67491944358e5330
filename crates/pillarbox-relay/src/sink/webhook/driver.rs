//! The driver of the webhook sink.

use std::sync::Arc;

use crate::{
    connect::OpenSink,
    driver::{About, SinkDriver},
    sink::webhook::{WebhookSink, address},
};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "webhook",
        name: "webhook",
        schemes: &["https", "http"],
        example: "https://host/path",
        summary: "a webhook: each event is one signed request",
        feature: None,
        check: |url| address::parse(url).map(drop).map_err(|error| error.message),
        redact: address::redacted,
    },
    provisions: None,
    open: Some(|options| {
        let sink = WebhookSink::open(options)?;
        Ok(OpenSink::new("webhook", Arc::new(sink)))
    }),
};

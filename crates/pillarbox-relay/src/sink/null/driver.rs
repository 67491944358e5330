//! The driver of the null sink.

use crate::{
    connect::OpenSink,
    driver::{About, SinkDriver, address},
};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "null",
        name: "null",
        schemes: &["null"],
        example: "null:",
        summary: "accepts everything and keeps nothing, for measuring",
        feature: None,
        check: address::check_nothing,
        redact: address::redact_one,
    },
    provisions: None,
    open: Some(|_| {
        Ok(OpenSink::new(
            "null",
            std::sync::Arc::new(crate::sink::null::Null),
        ))
    }),
};

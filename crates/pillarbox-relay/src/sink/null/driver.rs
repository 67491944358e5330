//! The sink that keeps nothing among the sinks.

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

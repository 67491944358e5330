//! The driver of the standard output sink.

use crate::{
    connect::OpenSink,
    driver::{About, SinkDriver, address},
};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "stdout",
        name: "standard output",
        schemes: &["stdout"],
        example: "stdout:",
        summary: "NDJSON on standard output",
        feature: None,
        check: address::check_nothing,
        redact: address::redact_one,
    },
    provisions: None,
    open: Some(|_| {
        Ok(OpenSink::new(
            "stdout",
            std::sync::Arc::new(crate::sink::stdout::Stdout::default()),
        ))
    }),
};

//! The driver of the file sink.

use crate::{
    connect::OpenSink,
    driver::{About, SinkDriver, address},
    sink::file::{Address, FileSink},
};

pub(super) static DRIVER: SinkDriver = SinkDriver {
    about: About {
        kind: "file",
        name: "file",
        schemes: &["file"],
        example: "file:path",
        summary: "a file of NDJSON",
        feature: None,
        check: |url| Address::parse(url).map(drop).map_err(|error| error.message),
        redact: address::redact_one,
    },
    provisions: None,
    open: Some(|options| {
        let sink = FileSink::open(options)?;
        Ok(OpenSink::new("file", std::sync::Arc::new(sink)))
    }),
};

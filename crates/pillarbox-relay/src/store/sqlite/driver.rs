//! The driver of SQLite.

use crate::driver::{About, StoreDriver, address};

pub(super) static DRIVER: StoreDriver = StoreDriver {
    about: About {
        kind: "sqlite",
        name: "SQLite",
        schemes: &["sqlite"],
        example: "sqlite:path",
        summary: "an SQLite file",
        feature: Some("sqlite"),
        check: address::check_nothing,
        redact: address::redact_one,
    },
    claims_rows: false,
    #[cfg(feature = "sqlite")]
    open: Some(|options| {
        let store = std::sync::Arc::new(crate::store::sqlite::SqliteStore::open(options)?);
        Ok(crate::connect::OpenStore::new("sqlite", store.clone()).with_event_log(store))
    }),
    #[cfg(not(feature = "sqlite"))]
    open: None,
};

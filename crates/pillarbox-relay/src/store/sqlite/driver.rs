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
        let store = crate::store::sqlite::SqliteStore::open(options)?;
        Ok(crate::connect::OpenStore::new(
            "sqlite",
            std::sync::Arc::new(store),
        ))
    }),
    #[cfg(not(feature = "sqlite"))]
    open: None,
};

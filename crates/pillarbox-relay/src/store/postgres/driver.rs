//! The driver of PostgreSQL.

use crate::driver::{About, StoreDriver, address};

pub(super) static DRIVER: StoreDriver = StoreDriver {
    about: About {
        kind: "postgres",
        name: "PostgreSQL",
        schemes: &["postgres", "postgresql"],
        example: "postgres://user@host/database",
        summary: "PostgreSQL 15 or newer",
        feature: Some("postgres"),
        check: address::check_one,
        redact: address::redact_one,
    },
    claims_rows: false,
    #[cfg(feature = "postgres")]
    open: Some(|options| {
        let store = std::sync::Arc::new(crate::store::postgres::PostgresStore::open(options)?);
        Ok(crate::connect::OpenStore::new("postgres", store.clone()).with_event_log(store))
    }),
    #[cfg(not(feature = "postgres"))]
    open: None,
};

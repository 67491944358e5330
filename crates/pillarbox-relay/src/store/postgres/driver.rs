//! The driver of PostgreSQL.

use crate::{
    driver::{About, StoreDriver, address},
    tls::INLINE_PEM,
};

pub(super) static DRIVER: StoreDriver = StoreDriver {
    about: About {
        kind: "postgres",
        name: "PostgreSQL",
        schemes: &["postgres", "postgresql"],
        example: "postgres://user@host/database",
        summary: "PostgreSQL 15 or newer",
        feature: Some("postgres"),
        check: address::check_one,
        redact,
    },
    claims_rows: false,
    #[cfg(feature = "postgres")]
    open: Some(|options| {
        let store = std::sync::Arc::new(crate::store::postgres::PostgresStore::open(options)?);
        Ok(crate::connect::OpenStore::new("postgres", store.clone())
            .with_event_log(store.clone())
            .with_adoption(store))
    }),
    #[cfg(not(feature = "postgres"))]
    open: None,
};

/// The query may have a password, and the text of a key instead of its file.
fn redact(url: &str) -> String {
    let shown = address::redact_one(url);
    let Some((place, query)) = shown.split_once('?') else {
        return shown;
    };
    let shown = query.split('&').map(|pair| {
        let parsed = url::form_urlencoded::parse(pair.as_bytes()).next();
        match parsed {
            Some((name, value))
                if name.ends_with("password") || value.trim_start().starts_with(INLINE_PEM) =>
            {
                format!("{name}=***")
            }
            _ => pair.to_owned(),
        }
    });
    format!("{place}?{}", shown.collect::<Vec<_>>().join("&"))
}

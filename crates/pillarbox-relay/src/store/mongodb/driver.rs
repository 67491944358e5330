//! The driver of MongoDB.

use crate::driver::{About, StoreDriver, address::scheme_alone};

pub(super) static DRIVER: StoreDriver = StoreDriver {
    about: About {
        kind: "mongodb",
        name: "MongoDB",
        schemes: &["mongodb", "mongodb+srv"],
        example: "mongodb://host/database",
        summary: "MongoDB, a replica set (`mongodb://host[,host…]/database?replicaSet=name`)",
        feature: Some("mongodb"),
        check,
        redact,
    },
    claims_rows: true,
    #[cfg(feature = "mongodb")]
    open: Some(|options| {
        use std::sync::Arc;

        use crate::{
            connect::{Claim, OpenStore},
            store::mongodb::{MongoStore, RowsStore},
        };
        let store = Arc::new(MongoStore::open(options)?);
        let mut open = OpenStore::new("mongodb", store.clone()).with_event_log(store.clone());
        if options.claim == Claim::Rows {
            open.store = Arc::new(RowsStore::new(store));
        }
        Ok(open)
    }),
    #[cfg(not(feature = "mongodb"))]
    open: None,
};

/// The hosts are a list, which URL parsers can't read.
fn check(url: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    let hosts = rest
        .strip_prefix("//")
        .map(|rest| rest.rsplit_once('@').map_or(rest, |(_, place)| place));
    match hosts {
        None => Err(format!("`{scheme}:` must be followed by `//` and a host")),
        Some(hosts) if hosts.starts_with(['/', '?']) || hosts.is_empty() => {
            Err("the address has no host".into())
        }
        Some(_) => Ok(()),
    }
}

/// One user is given for all hosts. Everything before the last `@` may be a password, however it is written.
fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return scheme_alone(url);
    };
    let (user, place) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        Some((user, place)) => match user.split_once(':') {
            Some((name, _)) => (format!("{name}:***@"), place),
            None => (format!("{user}@"), place),
        },
    };
    let (hosts, options) = place.split_once('?').unwrap_or((place, ""));
    let shown = options.split('&').map(|option| match option.split_once('=') {
        // `tlsCertificateKeyFilePassword`, `authMechanismProperties=AWS_SESSION_TOKEN:…`, `proxyPassword`.
        Some((name, _))
            if ["password", "properties"]
                .iter()
                .any(|end| name.to_lowercase().ends_with(end)) =>
        {
            format!("{name}=***")
        }
        _ => option.to_owned(),
    });
    let shown = shown.collect::<Vec<_>>().join("&");
    let separator = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{hosts}{separator}{shown}")
}

//! The indexes.

use mongodb::{
    IndexModel,
    bson::{Document, doc},
    options::IndexOptions,
};

use super::{UNIQUE_VERSIONS_INDEX, VERSIONS_INDEX};

/// One index of the outbox.
pub(in crate::store::mongodb) struct Index {
    pub(super) keys: Document,
    name: &'static str,
    unique: bool,
    sparse: bool,
    partial: Option<Document>,
}

impl Index {
    fn new(name: &'static str, keys: Document) -> Self {
        Self {
            keys,
            name,
            unique: false,
            sparse: false,
            partial: None,
        }
    }

    pub(in crate::store::mongodb) fn model(&self) -> IndexModel {
        let options = IndexOptions::builder()
            .name(self.name.to_owned())
            .unique(self.unique.then_some(true))
            .sparse(self.sparse.then_some(true))
            .partial_filter_expression(self.partial.clone())
            .build();
        IndexModel::builder()
            .keys(self.keys.clone())
            .options(options)
            .build()
    }

    /// The options for the shell.
    pub(super) fn options(&self) -> Document {
        let mut options = doc! { "name": self.name };
        if self.unique {
            options.insert("unique", true);
        }
        if self.sparse {
            options.insert("sparse", true);
        }
        if let Some(partial) = &self.partial {
            options.insert("partialFilterExpression", partial.clone());
        }
        options
    }
}

/// The first five are those that services with this collection know. `pending` is for discovery: an event leaves it
/// when it is settled, so its cost does not depend on the number of events ever delivered.
fn event_indexes() -> Vec<Index> {
    vec![
        Index::new("status_created_at", doc! { "status": 1, "created_at": 1 }),
        Index::new("status_published_at", doc! { "status": 1, "published_at": 1 }),
        Index {
            sparse: true,
            ..Index::new("locked_until", doc! { "locked_until": 1 })
        },
        Index {
            unique: true,
            ..Index::new("event_id", doc! { "event_id": 1 })
        },
        versions(),
        Index {
            partial: Some(doc! { "status": "pending" }),
            // The status is always the same in it, but with it a query need not read the event.
            ..Index::new("pending", doc! { "seq": 1, "lane": 1, "status": 1 })
        },
        Index {
            unique: true,
            ..Index::new("seq", doc! { "seq": 1 })
        },
    ]
}

/// For the check that versions increase.
pub(in crate::store::mongodb) fn versions() -> Index {
    Index::new(VERSIONS_INDEX, doc! { "entity_id": 1, "entity_version": 1 })
}

/// Allows each version of an aggregate only once.
pub(in crate::store::mongodb) fn unique_versions() -> Index {
    Index {
        unique: true,
        partial: Some(doc! { "entity_version": { "$exists": true } }),
        ..Index::new(
            UNIQUE_VERSIONS_INDEX,
            doc! { "entity_type": 1, "entity_id": 1, "entity_version": 1 },
        )
    }
}

fn parked_indexes() -> Vec<Index> {
    vec![
        Index {
            partial: Some(doc! { "due_at": { "$exists": true } }),
            ..Index::new("due_seq", doc! { "due_at": 1, "_id": 1, "lane": 1 })
        },
        Index::new(
            "key",
            doc! { "lane": 1, "key": 1, "_id": 1, "state": 1, "due_at": 1 },
        ),
    ]
}

fn dead_indexes() -> Vec<Index> {
    vec![
        Index::new("event_id", doc! { "event_id": 1 }),
        // This index alone serves the count of open letters by cause. (A partial index on open letters would not:
        // without the state among its keys, each letter is read to check it.)
        Index::new(
            "open",
            doc! { "state": 1, "_id": 1, "fingerprint": 1, "died_at": 1 },
        ),
        Index::new("cause", doc! { "fingerprint": 1, "died_at": 1, "state": 1 }),
        Index::new("died_at", doc! { "died_at": 1 }),
    ]
}

/// An event is published once. It can die more than once: it can be replayed and die again.
fn log_indexes() -> Vec<Index> {
    let of_an_id = |name: &'static str| Index {
        partial: Some(doc! { name: { "$exists": true } }),
        ..Index::new(name, doc! { name: 1, "_id": 1 })
    };
    vec![
        Index {
            unique: true,
            partial: Some(doc! { "status": "published" }),
            ..Index::new("published", doc! { "event_id": 1 })
        },
        Index {
            partial: Some(doc! { "status": "dead" }),
            ..Index::new("died", doc! { "event_id": 1, "_id": 1 })
        },
        of_an_id("entity_id"),
        of_an_id("project_id"),
        of_an_id("user_id"),
        of_an_id("correlation_id"),
    ]
}

/// Without the one on `_id`, which every collection has.
pub(super) fn indexes(collection: &str) -> Vec<Index> {
    match collection {
        "events" => event_indexes(),
        "parked" => parked_indexes(),
        "dead" => dead_indexes(),
        "log" => log_indexes(),
        "recoveries" => vec![Index::new("seq", doc! { "seq": 1 })],
        "records" => vec![Index::new("space_due", doc! { "_id.space": 1, "due_at": 1 })],
        _ => Vec::new(),
    }
}

/// Indexes of an earlier version that are no longer used.
pub(super) fn retired(collection: &str) -> &'static [&'static str] {
    match collection {
        "parked" => &["due"],
        _ => &[],
    }
}

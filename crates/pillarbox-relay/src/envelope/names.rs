//! The headers that carry an event's fields where its payload is the whole body. Consumers read them by these names.

pub(crate) const ID: &str = "Pillarbox-Id";
pub(crate) const EVENT_TYPE: &str = "Pillarbox-Event-Type";
pub(crate) const SCHEMA_VERSION: &str = "Pillarbox-Schema-Version";
pub(crate) const AGGREGATE_TYPE: &str = "Pillarbox-Aggregate-Type";
pub(crate) const AGGREGATE_ID: &str = "Pillarbox-Aggregate-Id";
pub(crate) const AGGREGATE_VERSION: &str = "Pillarbox-Aggregate-Version";
pub(crate) const KEY: &str = "Pillarbox-Key";
pub(crate) const CREATED_AT: &str = "Pillarbox-Created-At";
pub(crate) const PROJECT_ID: &str = "Pillarbox-Project-Id";
pub(crate) const USER_ID: &str = "Pillarbox-User-Id";

/// What all of them begin with. A producer's header that does, too, is given another name.
pub(crate) const PREFIX: &str = "Pillarbox-";

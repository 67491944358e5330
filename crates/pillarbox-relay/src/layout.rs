//! A table that a team already has: how its columns map to the fields of an event, and what its own columns say
//! about a delivery.
//!
//! A [`Layout`] names columns and words; it never contains SQL. [`presets`] has the layouts that are known by name. The
//! store turns a layout into statements, see `store/postgres/adopt`.

pub mod presets;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use pillarbox::table::{TableNameError, Tables};

pub use self::source::{Part, Source, SourceError};

/// A table with events that Pillarbox did not create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The table, optionally after a schema and a dot.
    pub table: String,
    pub fields: BTreeMap<Field, Source>,
    pub states: States,
    /// The columns that the relay keeps up to date.
    pub records: BTreeMap<Record, String>,
    /// Columns that shapes of messages need besides the fields.
    pub carried: BTreeSet<String>,
    /// Delete a row when its event was published.
    pub delete_published: bool,
}

/// A field of an event that a layout reads from a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Id,
    Topic,
    Stream,
    EventType,
    SchemaVersion,
    AggregateType,
    AggregateId,
    AggregateVersion,
    PartitionKey,
    Payload,
    Headers,
    ProjectId,
    UserId,
    CreatedAt,
    AvailableAt,
    MaxAttempts,
    BaseDelayMs,
    MaxDelayMs,
    BackoffMultiplier,
}

impl Field {
    pub const ALL: [Self; 19] = [
        Self::Id,
        Self::Topic,
        Self::Stream,
        Self::EventType,
        Self::SchemaVersion,
        Self::AggregateType,
        Self::AggregateId,
        Self::AggregateVersion,
        Self::PartitionKey,
        Self::Payload,
        Self::Headers,
        Self::ProjectId,
        Self::UserId,
        Self::CreatedAt,
        Self::AvailableAt,
        Self::MaxAttempts,
        Self::BaseDelayMs,
        Self::MaxDelayMs,
        Self::BackoffMultiplier,
    ];

    /// Every event has these, so every layout must say where they come from.
    pub const REQUIRED: [Self; 6] = [
        Self::Id,
        Self::Topic,
        Self::EventType,
        Self::AggregateType,
        Self::AggregateId,
        Self::Payload,
    ];

    /// The name of the field, in the configuration and in Pillarbox's own table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Topic => "topic",
            Self::Stream => "stream",
            Self::EventType => "event_type",
            Self::SchemaVersion => "schema_version",
            Self::AggregateType => "aggregate_type",
            Self::AggregateId => "aggregate_id",
            Self::AggregateVersion => "aggregate_version",
            Self::PartitionKey => "partition_key",
            Self::Payload => "payload",
            Self::Headers => "headers",
            Self::ProjectId => "project_id",
            Self::UserId => "user_id",
            Self::CreatedAt => "created_at",
            Self::AvailableAt => "available_at",
            Self::MaxAttempts => "max_attempts",
            Self::BaseDelayMs => "base_delay_ms",
            Self::MaxDelayMs => "max_delay_ms",
            Self::BackoffMultiplier => "backoff_multiplier",
        }
    }
}

/// The values of columns in one state of an event. `None` is null.
pub type Words = BTreeMap<String, Option<String>>;

/// How a row shows the state of its event. A table whose rows are only inserted has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct States {
    /// To be delivered. A new row has these values.
    pub pending: Words,
    /// An attempt failed, and the event waits for the next one. The same as pending if empty.
    pub failed: Words,
    /// The old worker has taken the row. The relay never writes these values.
    pub processing: Words,
    pub published: Words,
    pub dead: Words,
}

impl States {
    /// Whether rows show a state at all.
    pub fn are_shown(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What a row shows while its event waits for a retry.
    pub fn waiting(&self) -> &Words {
        if self.failed.is_empty() {
            &self.pending
        } else {
            &self.failed
        }
    }

    /// Every column that shows the state.
    pub fn columns(&self) -> BTreeSet<&str> {
        [
            &self.pending,
            &self.failed,
            &self.processing,
            &self.published,
            &self.dead,
        ]
        .into_iter()
        .flat_map(|words| words.keys().map(String::as_str))
        .collect()
    }
}

/// What a relay records about the delivery of an event, besides its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// How many attempts failed.
    Attempts,
    LastError,
    FirstAttemptAt,
    LastAttemptAt,
    /// When a failed event is tried again.
    NextAttemptAt,
    PublishedAt,
}

impl Record {
    pub const ALL: [Self; 6] = [
        Self::Attempts,
        Self::LastError,
        Self::FirstAttemptAt,
        Self::LastAttemptAt,
        Self::NextAttemptAt,
        Self::PublishedAt,
    ];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::LastError => "last_error",
            Self::FirstAttemptAt => "first_attempt_at",
            Self::LastAttemptAt => "last_attempt_at",
            Self::NextAttemptAt => "next_attempt_at",
            Self::PublishedAt => "published_at",
        }
    }
}

impl Layout {
    /// The names of Pillarbox's own tables beside this one.
    pub fn own_tables(&self) -> Result<Tables, TableNameError> {
        Tables::new(&format!("{}_pillarbox", self.table), None)
    }

    /// The first mistake that can be seen without looking at the table.
    pub fn check(&self) -> Result<(), LayoutError> {
        for field in Field::REQUIRED {
            if !self.fields.contains_key(&field) {
                return Err(LayoutError::Missing(field));
            }
        }
        if !matches!(self.fields.get(&Field::Id), Some(Source::Column(_))) {
            return Err(LayoutError::NotAColumn(Field::Id));
        }
        if !matches!(self.fields.get(&Field::Payload), Some(Source::Column(_))) {
            return Err(LayoutError::NotAColumn(Field::Payload));
        }
        if self.states.are_shown() && !self.delete_published {
            if self.states.published.is_empty() {
                return Err(LayoutError::NoWords("published"));
            }
            if self.states.pending == self.states.published {
                return Err(LayoutError::SameWords("published"));
            }
        }
        if self.states.are_shown() && self.states.dead.is_empty() {
            return Err(LayoutError::NoWords("dead"));
        }
        if self.states.are_shown() && self.states.pending == self.states.dead {
            return Err(LayoutError::SameWords("dead"));
        }
        let can_be_header = |name: &&String| name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if let Some(name) = self.carried.iter().find(|name| !can_be_header(name)) {
            return Err(LayoutError::NotCarried(name.clone()));
        }
        Ok(())
    }

    /// Every column that the layout names.
    pub fn columns(&self) -> BTreeSet<&str> {
        let read = self.fields.values().flat_map(Source::columns);
        let written = self.records.values().map(String::as_str);
        let carried = self.carried.iter().map(String::as_str);
        read.chain(written)
            .chain(carried)
            .chain(self.states.columns())
            .collect()
    }
}

/// Why a layout can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("`fields.{}` is missing: name the column it is in", .0.name())]
    Missing(Field),
    #[error("`fields.{}` must be a column", .0.name())]
    NotAColumn(Field),
    #[error("`states.{0}` is missing: which values do the columns have then?")]
    NoWords(&'static str),
    #[error("the column `{0}` can't be carried: its name has a character that a header can't have")]
    NotCarried(String),
    #[error("`states.{0}` is the same as `states.pending`: a relay could not tell them apart")]
    SameWords(&'static str),
}

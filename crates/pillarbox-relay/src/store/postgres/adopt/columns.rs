//! The columns of an adopted table, and values read from them as SQL expressions.

use std::collections::{BTreeMap, BTreeSet};

use pillarbox::table::{self, Tables};

use crate::{
    envelope::ROW_PREFIX,
    layout::{Field, Layout, Part, Source, Words},
    store::{StoreError, StoreErrorKind},
};

/// The table's columns, by name.
pub(super) struct Columns {
    table: String,
    columns: BTreeMap<String, Column>,
    /// The functions that read JSON from text, quoted.
    as_json: String,
    as_jsonb: String,
}

pub(super) struct Column {
    kind: Kind,
    /// The type as SQL, with its schema.
    sql_type: String,
    /// The collation as SQL, with its schema.
    collation: Option<String>,
}

/// What matters of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// Text that compares in its own way.
    CiText,
    /// `char(n)`, which compares without trailing spaces.
    Padded,
    Uuid,
    Integer,
    Number,
    Bool,
    Enum,
    Json,
    Jsonb,
    Bytes,
    Timestamp,
    TimestampTz,
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "text" | "varchar" | "name" => Self::Text,
            "citext" => Self::CiText,
            "bpchar" => Self::Padded,
            "uuid" => Self::Uuid,
            "int2" | "int4" | "int8" => Self::Integer,
            "numeric" | "float4" | "float8" => Self::Number,
            "bool" => Self::Bool,
            "enum" => Self::Enum,
            "json" => Self::Json,
            "jsonb" => Self::Jsonb,
            "bytea" => Self::Bytes,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::TimestampTz,
            _ => Self::Other,
        }
    }
}

impl Columns {
    /// Name, type as SQL, name of the type, and collation.
    pub(super) fn new(
        table: &str,
        own: &Tables,
        columns: impl IntoIterator<Item = (String, String, String, Option<String>)>,
    ) -> Self {
        let columns = columns
            .into_iter()
            .map(|(name, sql_type, kind, collation)| {
                let kind = Kind::of(&kind);
                let column = Column {
                    kind,
                    sql_type,
                    collation,
                };
                (name, column)
            })
            .collect();
        Self {
            table: table.to_owned(),
            columns,
            as_json: own.beside("as_json"),
            as_jsonb: own.beside("as_jsonb"),
        }
    }

    /// Whether the table has every column that the layout names.
    pub(super) fn check(&self, layout: &Layout) -> Result<(), StoreError> {
        let missing: Vec<&str> = layout
            .columns()
            .into_iter()
            .filter(|name| !self.columns.contains_key(*name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let there: Vec<&str> = self.columns.keys().map(String::as_str).collect();
        Err(misfit(format!(
            "the layout does not fit the table {}: it has no column `{}`. Its columns are {}. Correct `outbox.layout`",
            self.table,
            missing.join("`, `"),
            there.join(", ")
        )))
    }

    fn column(&self, name: &str) -> Result<&Column, StoreError> {
        self.columns
            .get(name)
            .ok_or_else(|| misfit(format!("the table {} has no column `{name}`", self.table)))
    }

    /// The type of a column, as SQL.
    pub(super) fn sql_type(&self, name: &str) -> Result<&str, StoreError> {
        self.column(name).map(|column| column.sql_type.as_str())
    }

    /// The error for a column whose type can't hold a field's values.
    fn unfit(&self, name: &str, what: &str, wanted: &str) -> StoreError {
        let found = self.columns.get(name).map_or("", |column| &column.sql_type);
        misfit(format!(
            "the column `{name}` of {} has the type {found} and can't be {what}: this needs {wanted}",
            self.table
        ))
    }

    /// The value of a field, for an insert into the outbox. It never fails, whatever the row contains.
    pub(super) fn value(&self, field: Field, source: &Source, row: &str) -> Result<String, StoreError> {
        Ok(match field {
            Field::Id => format!("coalesce({}, gen_random_uuid()::text)", self.text(source, row)?),
            Field::Topic | Field::EventType | Field::AggregateType | Field::AggregateId => {
                format!("coalesce({}, '')", self.text(source, row)?)
            }
            Field::Stream | Field::PartitionKey | Field::ProjectId | Field::UserId => {
                format!("nullif({}, '')", self.text(source, row)?)
            }
            // The major part of a version such as 1.0.0.
            Field::SchemaVersion => {
                let text = self.text(source, row)?;
                format!(
                    "coalesce(case when ({text}) ~ '^[0-9]{{1,9}}([.]|$)' then greatest(split_part({text}, '.', 1)::integer, 1) end, 1)"
                )
            }
            Field::AggregateVersion | Field::BaseDelayMs | Field::MaxDelayMs => {
                bigint(&format!("({})", self.text(source, row)?))
            }
            Field::MaxAttempts => {
                let text = self.text(source, row)?;
                format!("case when ({text}) ~ '^[0-9]{{1,9}}$' then ({text})::integer end")
            }
            Field::BackoffMultiplier => {
                let text = self.text(source, row)?;
                format!(
                    "case when ({text}) ~ '^[0-9]{{1,9}}([.][0-9]{{1,9}})?$' then ({text})::double precision end"
                )
            }
            Field::Payload => self.payload(source, row)?,
            Field::Headers => self.headers(source, row)?,
            Field::CreatedAt => {
                format!("coalesce({}, clock_timestamp())", self.time(field, source, row)?)
            }
            Field::AvailableAt => {
                let time = self.time(field, source, row)?;
                format!("case when {time} > clock_timestamp() then {time} end")
            }
        })
    }

    /// A value as text; null stays null.
    fn text(&self, source: &Source, row: &str) -> Result<String, StoreError> {
        match source {
            Source::Column(name) => {
                if self.column(name)?.kind == Kind::Bytes {
                    return Err(self.unfit(name, "a name", "a type that is text"));
                }
                Ok(format!("{row}.{}::text", column(name)?))
            }
            Source::Path { column: name, path } => {
                let json = self.jsonb(name, row)?;
                let path: Result<Vec<String>, StoreError> = path.iter().map(|step| literal(step)).collect();
                Ok(format!("({json} #>> array[{}]::text[])", path?.join(", ")))
            }
            Source::Text(parts) => {
                let parts: Result<Vec<String>, StoreError> = parts
                    .iter()
                    .map(|part| match part {
                        Part::Fixed(text) => literal(text),
                        Part::Column(name) => {
                            let value = self.text(&Source::Column(name.clone()), row)?;
                            Ok(format!("coalesce({value}, '')"))
                        }
                    })
                    .collect();
                let parts = parts?;
                Ok(match parts.is_empty() {
                    true => "''".to_owned(),
                    false => format!("({})", parts.join(" || ")),
                })
            }
            Source::First(sources) => {
                let values: Result<Vec<String>, StoreError> =
                    sources.iter().map(|source| self.text(source, row)).collect();
                let values = values?;
                Ok(match values.is_empty() {
                    true => "null::text".to_owned(),
                    false => format!("coalesce({})", values.join(", ")),
                })
            }
        }
    }

    fn jsonb(&self, name: &str, row: &str) -> Result<String, StoreError> {
        let quoted = column(name)?;
        Ok(match self.column(name)?.kind {
            Kind::Jsonb => format!("{row}.{quoted}"),
            // Some JSON can't be jsonb: a zero byte in a string.
            Kind::Json | Kind::Text | Kind::CiText | Kind::Padded => {
                format!("{}({row}.{quoted}::text)", self.as_jsonb)
            }
            _ => return Err(self.unfit(name, "read as JSON", "jsonb, json or text")),
        })
    }

    fn payload(&self, source: &Source, row: &str) -> Result<String, StoreError> {
        let Source::Column(name) = source else {
            return Err(misfit("`fields.payload` must be a column"));
        };
        let quoted = column(name)?;
        Ok(match self.column(name)?.kind {
            Kind::Json | Kind::Jsonb => format!("coalesce({row}.{quoted}::text, 'null')"),
            Kind::Text | Kind::CiText | Kind::Padded => {
                format!("coalesce({}({row}.{quoted}::text), 'null')", self.as_json)
            }
            _ => return Err(self.unfit(name, "the payload", "jsonb, json or text")),
        })
    }

    /// Headers are texts: what is nested becomes JSON text, and null is left out. So is a name that no header can have,
    /// and a control character becomes a space: the event itself is good.
    fn headers(&self, source: &Source, row: &str) -> Result<String, StoreError> {
        let Source::Column(name) = source else {
            return Err(misfit("`fields.headers` must be a column"));
        };
        let json = self.jsonb(name, row)?;
        Ok(format!(
            "(select coalesce(jsonb_object_agg(h.key, regexp_replace(h.value #>> '{{}}', '[[:cntrl:]]', ' ', 'g')) \
             filter (where jsonb_typeof(h.value) <> 'null' and h.key ~ '^[!-9;-~]+$'), '{{}}') \
             from jsonb_each(case when jsonb_typeof({json}) = 'object' then {json} end) h)"
        ))
    }

    /// Columns as headers: their names with a prefix, their values as JSON text.
    pub(super) fn carried(&self, names: &BTreeSet<String>, row: &str) -> Result<String, StoreError> {
        let pairs: Result<Vec<String>, StoreError> = names
            .iter()
            .map(|name| {
                let header = literal(&format!("{ROW_PREFIX}{name}"))?;
                Ok(format!(
                    "{header}, coalesce(to_json({row}.{}), 'null')::text",
                    column(name)?
                ))
            })
            .collect();
        Ok(format!("jsonb_build_object({})", pairs?.join(", ")))
    }

    fn time(&self, field: Field, source: &Source, row: &str) -> Result<String, StoreError> {
        let Source::Column(name) = source else {
            return Err(misfit(format!("`fields.{}` must be a column", field.name())));
        };
        let quoted = column(name)?;
        match self.column(name)?.kind {
            Kind::TimestampTz => Ok(format!("{row}.{quoted}")),
            Kind::Timestamp => Ok(format!("({row}.{quoted} at time zone 'UTC')")),
            _ => Err(self.unfit(name, "a time", "timestamptz or timestamp")),
        }
    }

    /// How often delivery failed before, as the row counts it.
    pub(super) fn count(&self, name: &str, row: &str) -> Result<String, StoreError> {
        match self.column(name)?.kind {
            Kind::Integer => Ok(format!(
                "coalesce(least(greatest({row}.{}, 0), 1000000), 0)::integer",
                column(name)?
            )),
            _ => Err(self.unfit(name, "a count", "smallint, integer or bigint")),
        }
    }

    /// Whether a row shows these words.
    pub(super) fn shows(&self, words: &Words, row: &str) -> Result<String, StoreError> {
        let conditions: Result<Vec<String>, StoreError> = words
            .iter()
            .map(|(name, word)| {
                let quoted = column(name)?;
                Ok(match word {
                    None => format!("{row}.{quoted} is null"),
                    Some(word) => format!("{row}.{quoted} = {}", self.word(name, word)?),
                })
            })
            .collect();
        let conditions = conditions?;
        Ok(match conditions.is_empty() {
            true => "true".to_owned(),
            false => conditions.join(" and "),
        })
    }

    /// A word as a value of its column.
    pub(super) fn word(&self, name: &str, word: &str) -> Result<String, StoreError> {
        let column = self.column(name)?;
        match column.kind {
            Kind::Text | Kind::CiText | Kind::Padded | Kind::Enum => {}
            Kind::Bool if matches!(word, "true" | "false") => {}
            Kind::Bool => return Err(self.unfit(name, &format!("`{word}`"), "`true` or `false`")),
            Kind::Integer if word.parse::<i32>().is_ok() => {}
            _ => {
                return Err(self.unfit(
                    name,
                    &format!("`{word}`"),
                    "text, an enum, a boolean or an integer",
                ));
            }
        }
        Ok(format!("{}::{}", literal(word)?, column.sql_type))
    }

    /// The id of an event as a value of the column with the ids. An event that was not written by the adopted table's
    /// producers may have an id that the column can't hold; then it is null.
    pub(super) fn id_of_event(&self, name: &str, id: &str) -> Result<String, StoreError> {
        let column = self.column(name)?;
        // Only with the column's own collation can its index be used.
        let collate = column
            .collation
            .as_ref()
            .map_or_else(String::new, |collation| format!(" collate {collation}"));
        Ok(match column.kind {
            Kind::Text => format!("{id}{collate}"),
            Kind::Padded => format!("{id}::bpchar{collate}"),
            Kind::Uuid => format!(
                "case when {id} ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' then {id}::uuid end"
            ),
            Kind::Integer => bigint(id),
            Kind::Number if column.sql_type.starts_with("numeric") => {
                format!("case when {id} ~ '^-?[0-9]{{1,60}}([.][0-9]{{1,60}})?$' then {id}::numeric end")
            }
            _ => return Err(self.unfit(name, "the id", "text, uuid, bigint or numeric")),
        })
    }

    /// A time of the outbox as a value of this column.
    pub(super) fn time_for(&self, name: &str, time: &str) -> Result<String, StoreError> {
        match self.column(name)?.kind {
            Kind::TimestampTz => Ok(time.to_owned()),
            Kind::Timestamp => Ok(format!("({time} at time zone 'UTC')")),
            _ => Err(self.unfit(name, "a time", "timestamptz or timestamp")),
        }
    }
}

/// A text as a bigint; null if it is none.
fn bigint(text: &str) -> String {
    format!(
        "case when {text} ~ '^-?[0-9]{{1,19}}$' then case when {text}::numeric between {} and {} then {text}::bigint end end",
        i64::MIN,
        i64::MAX
    )
}

/// A column's name, quoted.
pub(super) fn column(name: &str) -> Result<String, StoreError> {
    table::column(name)
        .ok_or_else(|| misfit("a column has no name, a name over 63 bytes, or one with a zero byte"))
}

pub(super) fn literal(text: &str) -> Result<String, StoreError> {
    table::literal(text).ok_or_else(|| misfit("a text in the layout has a zero byte"))
}

pub(super) fn misfit(text: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

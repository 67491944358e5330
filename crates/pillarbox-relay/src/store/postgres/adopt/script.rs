//! The statements that connect an adopted table with the outbox.

use pillarbox::table::Tables;

use super::{
    NEW_ROWS_FROM,
    columns::{Columns, column, literal, misfit},
};
use crate::{
    layout::{Field, Layout, Record, Source, Words},
    store::StoreError,
};

/// Makes the statements for one table.
pub(super) struct Script<'a> {
    pub(super) layout: &'a Layout,
    /// With their schema, if its name is simple.
    pub(super) tables: Tables,
    /// Wakes the relays.
    pub(super) channel: String,
    pub(super) columns: &'a Columns,
    /// The adopted table, with its schema, quoted.
    pub(super) adopted: String,
    /// The search path of the function that inserts events.
    pub(super) path: String,
    /// The search path of the one that updates rows. Triggers of the team run in it as well.
    pub(super) write_path: String,
}

impl Script<'_> {
    /// The functions and the trigger on the outbox. Nothing here touches the adopted table.
    pub(super) fn functions(&self) -> Result<String, StoreError> {
        let (columns, values) = self.insert("new")?;
        let mut script = self.fill(include_str!("../sql/adopt/text.sql"), &[]);
        script += &self.fill(
            include_str!("../sql/adopt/capture.sql"),
            &[
                ("columns", &columns),
                ("values", &values),
                ("channel", &self.channel),
                ("path", &self.path),
            ],
        );
        script += &self.fill(
            include_str!("../sql/adopt/write_back.sql"),
            &[
                ("for_all", &self.write_back("settled")?),
                ("for_one", &self.write_back("(select one.*)")?),
                ("path", &self.write_path),
            ],
        );
        // The functions' bodies end at these.
        for quote in ["$capture$", "$write_back$"] {
            if script.matches(quote).count() > 2 {
                return Err(misfit(format!("a name or word of the layout contains {quote}")));
            }
        }
        Ok(script)
    }

    /// The trigger on the adopted table.
    pub(super) fn trigger(&self) -> Result<String, StoreError> {
        let pending = self.columns.shows(&self.layout.states.pending, "new")?;
        Ok(self.fill(
            include_str!("../sql/adopt/capture_trigger.sql"),
            &[("pending", &pending)],
        ))
    }

    /// Lets the seqs of new rows begin above those of earlier rows, and creates the table that lists these. `start` says
    /// which rows were asked for.
    pub(super) fn before_trigger(&self, start: Option<&str>) -> Result<String, StoreError> {
        let mut script = self.fill(
            include_str!("../sql/adopt/first_seq.sql"),
            &[("new_rows_from", &NEW_ROWS_FROM.to_string())],
        );
        if let Some(start) = start {
            script += &self.fill(
                include_str!("../sql/adopt/backlog_table.sql"),
                &[("id", &self.id()?), ("start", &literal(start)?)],
            );
        }
        Ok(script)
    }

    /// Counts what an undo would lose.
    pub(super) fn unfinished(&self) -> Result<String, StoreError> {
        let waiting = match self.layout.states.are_shown() {
            true => self.waiting()?,
            false => "false".to_owned(),
        };
        let id_of_event = self.columns.id_of_event(self.id_column(), "n.id")?;
        Ok(self.fill(
            include_str!("../sql/adopt/unfinished.sql"),
            &[
                ("id", &self.id()?),
                ("id_of_event", &id_of_event),
                ("waiting", &waiting),
            ],
        ))
    }

    /// Finds the earlier rows. `from` is a condition on a row `t`.
    pub(super) fn backlog(&self, from: &str) -> Result<String, StoreError> {
        let mut order = Vec::new();
        for field in [Field::CreatedAt, Field::AggregateVersion] {
            if let Some(Source::Column(name)) = self.layout.fields.get(&field) {
                order.push(format!("t.{} nulls first", column(name)?));
            }
        }
        order.push(format!("t.{}", self.id()?));
        Ok(self.fill(
            include_str!("../sql/adopt/backlog.sql"),
            &[
                ("order", &order.join(", ")),
                ("waiting", &self.waiting()?),
                ("from", from),
                ("new_rows_from", &NEW_ROWS_FROM.to_string()),
                ("id", &self.id()?),
            ],
        ))
    }

    /// Copies a page of them.
    pub(super) fn copy(&self) -> Result<String, StoreError> {
        let (columns, values) = self.insert("t")?;
        Ok(self.fill(
            include_str!("../sql/adopt/copy.sql"),
            &[
                ("columns", &columns),
                ("values", &values),
                ("waiting", &self.waiting()?),
                ("id", &self.id()?),
            ],
        ))
    }

    /// The rows that are not delivered yet, whether or not the old worker has taken them.
    fn waiting(&self) -> Result<String, StoreError> {
        let states = &self.layout.states;
        let mut conditions = Vec::new();
        for words in [&states.pending, &states.failed, &states.processing] {
            if !words.is_empty() || !states.are_shown() {
                conditions.push(format!("({})", self.columns.shows(words, "t")?));
            }
        }
        conditions.dedup();
        Ok(conditions.join(" or "))
    }

    /// The columns of the outbox and their values, for an insert.
    fn insert(&self, row: &str) -> Result<(String, String), StoreError> {
        let mut columns = Vec::new();
        let mut values = Vec::new();
        for (field, source) in &self.layout.fields {
            if *field != Field::Headers {
                columns.push(field.name());
                values.push(self.columns.value(*field, source, row)?);
            }
        }
        columns.push(Field::Headers.name());
        values.push(self.headers(row)?);
        if let Some(name) = self.layout.records.get(&Record::Attempts) {
            columns.push("attempts");
            values.push(self.columns.count(name, row)?);
        }
        Ok((columns.join(", "), values.join(",\n        ")))
    }

    /// The headers of an event: those of the row, and the columns that it carries for shapes.
    fn headers(&self, row: &str) -> Result<String, StoreError> {
        let headers = match self.layout.fields.get(&Field::Headers) {
            Some(source) => self.columns.value(Field::Headers, source, row)?,
            None => "'{}'::jsonb".to_owned(),
        };
        Ok(match self.layout.carried.is_empty() {
            true => headers,
            false => format!(
                "{headers} || {}",
                self.columns.carried(&self.layout.carried, row)?
            ),
        })
    }

    /// The statements that bring rows up to date with these events.
    fn write_back(&self, settled: &str) -> Result<String, StoreError> {
        let id = self.id()?;
        let id_of_event = self.columns.id_of_event(self.id_column(), "n.id")?;
        let mut statements = Vec::new();
        let assignments = self.assignments()?;
        if !assignments.is_empty() {
            let part = |part: fn(&(String, String)) -> String| -> Vec<String> {
                assignments.iter().map(part).collect()
            };
            let settings = part(|(column, value)| format!("{column} = {value}"));
            let current = part(|(column, _)| format!("t.{column}"));
            let wanted = part(|(_, value)| value.clone());
            statements.push(self.fill(
                include_str!("../sql/adopt/write_back_update.sql"),
                &[
                    ("settled", settled),
                    ("assignments", &settings.join(",\n        ")),
                    ("current", &current.join(", ")),
                    ("wanted", &wanted.join(", ")),
                    ("id", &id),
                    ("id_of_event", &id_of_event),
                ],
            ));
        }
        if self.layout.delete_published {
            statements.push(self.fill(
                include_str!("../sql/adopt/write_back_delete.sql"),
                &[("settled", settled), ("id", &id), ("id_of_event", &id_of_event)],
            ));
        }
        Ok(match statements.is_empty() {
            true => "null;".to_owned(),
            false => statements.join("\n    "),
        })
    }

    /// What each column has to be, from the event `n` and the row `t`.
    fn assignments(&self) -> Result<Vec<(String, String)>, StoreError> {
        let states = &self.layout.states;
        let mut assignments = Vec::new();
        for name in states.columns() {
            let quoted = column(name)?;
            let sql_type = self.columns.sql_type(name)?;
            let word = |words: &Words| match words.get(name) {
                None => Ok(format!("t.{quoted}")),
                Some(None) => Ok(format!("null::{sql_type}")),
                Some(Some(word)) => self.columns.word(name, word),
            };
            let value = format!(
                "case n.status when 'published' then {} when 'dead' then {} when 'failed' then {} else {} end",
                word(&states.published)?,
                word(&states.dead)?,
                word(states.waiting())?,
                word(&states.pending)?
            );
            assignments.push((quoted, value));
        }
        for (record, name) in &self.layout.records {
            // A column that shows the state has its words only.
            if states.columns().contains(name.as_str()) {
                continue;
            }
            let quoted = column(name)?;
            let sql_type = self.columns.sql_type(name)?;
            let value = match record {
                Record::Attempts => {
                    self.columns.count(name, "t")?;
                    format!("n.attempts::{sql_type}")
                }
                // A type with a length cuts it.
                Record::LastError => format!("coalesce(n.last_error::{sql_type}, t.{quoted})"),
                // What the old worker wrote counts.
                Record::FirstAttemptAt => {
                    let time = self.columns.time_for(name, "n.first_attempt_at")?;
                    format!("coalesce(t.{quoted}, {time})")
                }
                Record::LastAttemptAt | Record::PublishedAt => {
                    let time = self.columns.time_for(name, &format!("n.{}", record.name()))?;
                    format!("coalesce({time}, t.{quoted})")
                }
                Record::NextAttemptAt => {
                    let due = self
                        .tables
                        .render("(select p.due_at from {events_parked} p where p.seq = n.seq)");
                    let due = self.columns.time_for(name, &due)?;
                    format!(
                        "case n.status when 'failed' then coalesce({due}, t.{quoted}) else t.{quoted} end"
                    )
                }
            };
            assignments.push((quoted, value));
        }
        Ok(assignments)
    }

    fn id_column(&self) -> &str {
        match self.layout.fields.get(&Field::Id) {
            Some(Source::Column(name)) => name,
            _ => "id",
        }
    }

    fn id(&self) -> Result<String, StoreError> {
        column(self.id_column())
    }

    /// Fills the names of the tables and the given parts into a statement. A part is never searched for others.
    fn fill(&self, template: &str, parts: &[(&str, &str)]) -> String {
        let mut out = String::with_capacity(template.len() * 2);
        let template = self.tables.render(template);
        let mut rest = template.as_str();
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            rest = &rest[open..];
            let name = rest[1..].split_once('}').map_or("", |(name, _)| name);
            let part = match name {
                "adopted" => Some(self.adopted.as_str()),
                _ => parts
                    .iter()
                    .find(|(part, _)| *part == name)
                    .map(|(_, value)| *value),
            };
            out.push_str(part.unwrap_or("{"));
            rest = &rest[part.map_or(1, |_| name.len() + 2)..];
        }
        out.push_str(rest);
        out
    }
}

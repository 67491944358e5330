//! The names of the tables, and the functions that make configured names and words safe in SQL. No other place quotes
//! them.

use thiserror::Error;

/// The names of the outbox's tables. All are derived from the main table's name unless given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    /// `outbox_events` or `schema.outbox_events`.
    events: String,
    /// The table of dead letters; `<events>_dead` unless given.
    dead: String,
}

/// A name that is not valid for a table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{name}` can't be a table name: {why}. Use up to 48 letters, digits and underscores, optionally after a schema and a dot"
)]
pub struct TableNameError {
    /// The name given.
    pub name: String,
    why: &'static str,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            events: "outbox_events".into(),
            dead: "outbox_events_dead".into(),
        }
    }
}

impl Tables {
    /// Other table names, each optionally after a schema and a dot. The table of dead letters is
    /// `<events>_dead` unless given.
    pub fn new(events: &str, dead: Option<&str>) -> Result<Self, TableNameError> {
        let dead = dead.map_or_else(|| format!("{events}_dead"), str::to_owned);
        check(events)?;
        check(&dead)?;
        Ok(Self {
            events: events.to_owned(),
            dead,
        })
    }

    /// The main table's name as configured: for messages, never for SQL.
    pub fn name(&self) -> &str {
        &self.events
    }

    /// The name of the table of dead letters as configured: never for SQL.
    pub fn dead_name(&self) -> &str {
        &self.dead
    }

    /// The name of a table next to the main one (`_parked`, `_lanes`, …): never for SQL.
    pub fn name_beside(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.events)
    }

    /// The main table, quoted for SQL.
    pub fn events(&self) -> String {
        quoted(&self.events)
    }

    /// The table of dead letters, quoted for SQL.
    pub fn dead(&self) -> String {
        quoted(&self.dead)
    }

    /// A table next to the main one (`_parked`, `_lanes`, …), quoted for SQL.
    pub fn beside(&self, suffix: &str) -> String {
        quoted(&self.name_beside(suffix))
    }

    /// The name of an index or constraint, quoted, without the schema (SQL uses the schema of the table).
    pub fn index(&self, suffix: &str) -> String {
        quoted(&format!(
            "{}_{suffix}",
            self.events.rsplit('.').next().unwrap_or(&self.events)
        ))
    }

    /// Fills the names into a statement: `{events}`, `{dead}`, `{events_…}` for a table next to the main one
    /// and `{index_…}` for a name without a schema.
    pub fn render(&self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len() + 64);
        let mut rest = sql;
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            rest = &rest[open..];
            let name = rest[1..].split_once('}').map_or("", |(name, _)| name);
            let put = match name.split_once('_') {
                None if name == "events" => Some(self.events()),
                None if name == "dead" => Some(self.dead()),
                Some(("events", suffix)) if is_word(suffix) => Some(self.beside(suffix)),
                Some(("index", suffix)) if is_word(suffix) => Some(self.index(suffix)),
                _ => None,
            };
            // Any other brace is part of the statement.
            out.push_str(put.as_deref().unwrap_or("{"));
            rest = &rest[put.map_or(1, |_| name.len() + 2)..];
        }
        out.push_str(rest);
        out
    }
}

fn is_word(suffix: &str) -> bool {
    suffix
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The name of a column that an application created, quoted for PostgreSQL. It may have any characters. `None`: no
/// column can have this name.
pub fn column(name: &str) -> Option<String> {
    let possible = (1..=63).contains(&name.len()) && !name.contains('\0');
    possible.then(|| format!("\"{}\"", name.replace('"', "\"\"")))
}

/// A text as a literal of PostgreSQL. `None`: no value can have this text.
pub fn literal(text: &str) -> Option<String> {
    // With the prefix, a backslash means the same whatever `standard_conforming_strings` is.
    let escaped = text.replace('\\', "\\\\").replace('\'', "''");
    (!text.contains('\0')).then(|| match text.contains('\\') {
        true => format!("E'{escaped}'"),
        false => format!("'{escaped}'"),
    })
}

/// Every name of a table in SQL passes through here. Only names that need no escaping are accepted, and they are
/// still quoted.
pub(crate) fn quoted(name: &str) -> String {
    debug_assert!(check(name).is_ok() || name.len() > 48);
    name.split('.')
        .map(|part| format!("\"{part}\""))
        .collect::<Vec<_>>()
        .join(".")
}

pub(crate) fn check(name: &str) -> Result<(), TableNameError> {
    let refuse = |why| {
        Err(TableNameError {
            name: name.to_owned(),
            why,
        })
    };
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() > 2 {
        return refuse("it has more than one dot");
    }
    for part in parts {
        if part.is_empty() {
            return refuse("a part of it is empty");
        }
        if part.len() > 48 {
            return refuse("it is too long");
        }
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            return refuse("it starts with a digit");
        }
        if !part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return refuse("it has other characters");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_derived() {
        let tables = Tables::new("shop.outbox", None).unwrap();
        assert_eq!(
            tables.render("select 1 from {events} join {events_parked} on {index_txid} '{' {dead} {other}"),
            r#"select 1 from "shop"."outbox" join "shop"."outbox_parked" on "outbox_txid" '{' "shop"."outbox_dead" {other}"#
        );
    }

    #[test]
    fn columns_and_words_can_have_any_characters() {
        assert_eq!(column("eventType").unwrap(), r#""eventType""#);
        assert_eq!(
            column(r#"a"; drop table x --"#).unwrap(),
            r#""a""; drop table x --""#
        );
        for impossible in ["", "a\0", &"x".repeat(64)] {
            assert_eq!(column(impossible), None);
        }
        assert_eq!(literal("it's").unwrap(), "'it''s'");
        assert_eq!(literal(r"\' or 1=1 --").unwrap(), r"E'\\'' or 1=1 --'");
        assert_eq!(literal("a\0"), None);
    }

    #[test]
    fn a_name_that_could_carry_sql_is_refused() {
        for name in [
            "",
            "a.b.c",
            "a b",
            "a\"b",
            "a;drop table x",
            "1a",
            "ä",
            ".a",
            "a.",
            &"x".repeat(49),
        ] {
            assert!(Tables::new(name, None).is_err(), "{name}");
            assert!(Tables::new("ok", Some(name)).is_err(), "{name}");
        }
    }
}

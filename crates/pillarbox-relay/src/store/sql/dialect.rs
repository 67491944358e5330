//! The parts in which the two dialects differ.

/// The dialect of a shared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Postgres,
    Sqlite,
}

impl Dialect {
    /// Fills these in:
    ///
    /// | in the file | meaning |
    /// | --- | --- |
    /// | `{now}` | the time now |
    /// | `{now_micros}` | the same in microseconds since 1970 |
    /// | `{micros t}` | the time `t` in microseconds since 1970 |
    /// | `{time n}` | the time that is `n` microseconds after 1970 |
    /// | `{after n}`, `{before n}` | `n` microseconds from now, or ago |
    /// | `{in x list}` | whether `x` is in a list that was given as one argument |
    /// | `{text x}` | a JSON column as text |
    /// | `{told list}` | the rows of a JSON list of events of a log: `seq`, `sink` and `failures` |
    /// | `{correlation h}` | the correlation id in a JSON column of headers |
    /// | `{lock t}` | locks the rows of `t` until the transaction ends |
    /// | `{skip_locked}` | locks the rows that nobody else has locked, and skips the others |
    /// | `{and_same_id}` | the event `e` also has the id of the letter `d`: after a truncate another event may have its seq. SQLite does not reuse a seq, and keeps an id as it was written |
    ///
    /// SQLite stores times as microseconds and has one writer at a time. It takes `$1` as PostgreSQL does.
    pub fn complete(self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len() * 2);
        let mut rest = sql;
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            let inner = rest[open + 1..].split_once('}').map_or("", |(inner, _)| inner);
            match self.word(inner) {
                Some(word) => {
                    out.push_str(&word);
                    rest = &rest[open + inner.len() + 2..];
                }
                // The name of a table, or a brace of the statement itself.
                None => {
                    out.push('{');
                    rest = &rest[open + 1..];
                }
            }
        }
        out.push_str(rest);
        out
    }

    /// A statement after which the transaction waits for no lock longer than a second. SQLite has a limit of its own.
    pub fn limit_lock_waits(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("select set_config('lock_timeout', '1s', true)"),
            Self::Sqlite => None,
        }
    }

    fn word(self, inner: &str) -> Option<String> {
        let (name, of) = inner.split_once(' ').unwrap_or((inner, ""));
        Some(match self {
            Self::Postgres => match name {
                "now" => "clock_timestamp()".into(),
                "now_micros" => "(extract(epoch from clock_timestamp()) * 1000000)::bigint".into(),
                "micros" => format!("(extract(epoch from {of}) * 1000000)::bigint"),
                "time" => format!("(timestamptz 'epoch' + {of} * interval '1 microsecond')"),
                "after" => format!("(clock_timestamp() + {of} * interval '1 microsecond')"),
                "before" => format!("(clock_timestamp() - {of} * interval '1 microsecond')"),
                "in" => {
                    let (what, list) = of.split_once(' ')?;
                    format!("{what} = any({list})")
                }
                "text" => format!("{of}::text"),
                "correlation" => format!("{of} ->> 'correlation-id'"),
                "told" => format!(
                    "(select * from jsonb_to_recordset({of}::text::jsonb) as r (seq bigint, sink text, failures jsonb))"
                ),
                "lock" => format!("for update of {of}"),
                "and_same_id" => "and e.id = d.id".into(),
                "skip_locked" => "for update skip locked".into(),
                _ => return None,
            },
            Self::Sqlite => {
                // `sqlite/shared.rs` binds it. SQLite's own clock has milliseconds; the other times in the tables have
                // microseconds.
                const NOW: &str = "$now";
                match name {
                    "now" | "now_micros" => NOW.into(),
                    "micros" | "time" | "text" => of.into(),
                    "after" => format!("({NOW} + {of})"),
                    "before" => format!("({NOW} - {of})"),
                    "in" => {
                        let (what, list) = of.split_once(' ')?;
                        format!("{what} in (select value from json_each({list}))")
                    }
                    "correlation" => format!("iif(json_valid({of}), {of} ->> 'correlation-id', null)"),
                    "told" => format!(
                        "(select value ->> 'seq' as seq, value ->> 'sink' as sink, value -> 'failures' as failures \
                         from json_each({of}))"
                    ),
                    "lock" | "skip_locked" | "and_same_id" => String::new(),
                    _ => return None,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_placeholders_are_filled_in() {
        let sql = "select {micros d.at}, '{}' from {dead} as d where {in d.seq $1} {lock d}";
        assert_eq!(
            Dialect::Postgres.complete(sql),
            "select (extract(epoch from d.at) * 1000000)::bigint, '{}' from {dead} as d \
             where d.seq = any($1) for update of d"
        );
        assert_eq!(
            Dialect::Sqlite.complete(sql),
            "select d.at, '{}' from {dead} as d where d.seq in (select value from json_each($1)) "
        );
    }
}

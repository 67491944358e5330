//! The conditions of a filter, as SQL. Only the given ones are written, so that an index can serve them.

use super::super::Argument;
use crate::{event_log::LogFilter, store::log_search::Span};

pub(super) struct Conditions {
    pub(super) sql: String,
    pub(super) arguments: Vec<Argument>,
}

impl Conditions {
    /// A topic pattern is only narrowed: the caller compares it itself.
    pub(super) fn new(filter: &LogFilter, span: Span) -> Self {
        let mut conditions = Self {
            sql: "l.position > $1 and l.position < $2".into(),
            arguments: arguments!(span.first, span.end),
        };
        for (column, value) in [
            ("aggregate_id", filter.aggregate_id.as_deref()),
            ("aggregate_type", filter.aggregate_type.as_deref()),
            ("project_id", filter.project_id.as_deref()),
            ("user_id", filter.user_id.as_deref()),
            ("correlation_id", filter.correlation_id.as_deref()),
            ("event_type", filter.event_type.as_deref()),
            ("topic", filter.exact_topic()),
            ("status", filter.status.as_deref()),
        ] {
            if let Some(value) = value {
                conditions.add(&format!("l.{column} = {{}}"), value.into());
            }
        }
        if let Some(prefix) = prefix(filter) {
            let of = "substr(l.topic, 1, length(cast({} as text))) = {}";
            conditions.add(of, prefix.as_str().into());
        }
        if let Some(since) = filter.since {
            conditions.add("{micros l.at} >= {}", since.into());
        }
        if let Some(until) = filter.until {
            conditions.add("{micros l.at} < {}", until.into());
        }
        conditions
    }

    /// `{}` is the value.
    fn add(&mut self, condition: &str, value: Argument) {
        self.arguments.push(value);
        let number = format!("${}", self.arguments.len());
        self.sql.push_str(" and ");
        self.sql.push_str(&condition.replace("{}", &number));
    }
}

/// The fixed tokens before the first `*` or `>`, with a dot.
fn prefix(filter: &LogFilter) -> Option<String> {
    let pattern = filter.topic.as_deref()?;
    if filter.exact_topic().is_some() {
        return None;
    }
    let fixed = pattern
        .split('.')
        .take_while(|token| !matches!(*token, "*" | ">"));
    let prefix: String = fixed.map(|token| format!("{token}.")).collect();
    (!prefix.is_empty()).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { first: 0, end: 9 };

    fn topic(topic: &str) -> LogFilter {
        LogFilter {
            topic: Some(topic.into()),
            ..LogFilter::default()
        }
    }

    #[test]
    fn a_pattern_is_narrowed_to_its_fixed_tokens() {
        assert_eq!(prefix(&topic("a.b.>")).as_deref(), Some("a.b."));
        assert_eq!(prefix(&topic("a.*.c")).as_deref(), Some("a."));
        assert_eq!(prefix(&topic(">")), None);
        assert_eq!(prefix(&topic("a.b")), None);
    }

    #[test]
    fn values_are_never_written_into_the_statement() {
        let conditions = Conditions::new(&topic("a'b.>"), SPAN);
        assert!(!conditions.sql.contains('\''), "{}", conditions.sql);
        let conditions = Conditions::new(&topic("a'b"), SPAN);
        assert_eq!(
            conditions.sql,
            "l.position > $1 and l.position < $2 and l.topic = $3"
        );
    }
}

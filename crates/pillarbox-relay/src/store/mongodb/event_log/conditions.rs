//! The conditions of a filter, as a query.

use mongodb::bson::{Document, doc};

use super::super::document::date;
use crate::{event_log::LogFilter, store::log_search::Span};

pub(super) fn conditions(filter: &LogFilter, span: Span) -> Document {
    let mut wanted = doc! { "_id": { "$gt": span.first, "$lt": span.end } };
    match filter.status.as_deref() {
        Some(status) => wanted.insert("status", status),
        None => wanted.insert("status", doc! { "$ne": "void" }),
    };
    for (name, value) in [
        ("entity_id", filter.aggregate_id.as_deref()),
        ("entity_type", filter.aggregate_type.as_deref()),
        ("project_id", filter.project_id.as_deref()),
        ("user_id", filter.user_id.as_deref()),
        ("correlation_id", filter.correlation_id.as_deref()),
        ("event_type", filter.event_type.as_deref()),
        ("topic", filter.exact_topic()),
    ] {
        if let Some(value) = value {
            wanted.insert(name, value);
        }
    }
    if let (Some(pattern), None) = (filter.topic.as_deref(), filter.exact_topic()) {
        wanted.insert("topic", doc! { "$regex": expression(pattern) });
    }
    let mut at = Document::new();
    if let Some(since) = filter.since {
        at.insert("$gte", date(since));
    }
    if let Some(until) = filter.until {
        at.insert("$lt", date(until));
    }
    if !at.is_empty() {
        wanted.insert("at", at);
    }
    wanted
}

/// The index that leads to the entries that match.
pub(super) fn index(filter: &LogFilter) -> &'static str {
    let ids = [
        (&filter.aggregate_id, "entity_id"),
        (&filter.correlation_id, "correlation_id"),
        (&filter.user_id, "user_id"),
        (&filter.project_id, "project_id"),
    ];
    let by_id = ids.into_iter().find(|(id, _)| id.is_some());
    by_id.map_or("_id_", |(_, index)| index)
}

/// A pattern of topics as a regular expression.
fn expression(pattern: &str) -> String {
    let token = |token: &str| match token {
        "*" => "[^.]*".to_owned(),
        ">" => "[\\s\\S]*".to_owned(),
        token => token.chars().map(escaped).collect(),
    };
    let tokens: Vec<String> = pattern.split('.').map(token).collect();
    format!("\\A{}\\z", tokens.join("\\."))
}

fn escaped(c: char) -> String {
    match c.is_ascii_punctuation() {
        true => format!("\\{c}"),
        false => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_becomes_an_expression() {
        assert_eq!(expression("a.*.c-1"), "\\Aa\\.[^.]*\\.c\\-1\\z");
        assert_eq!(expression("a_b.>"), "\\Aa\\_b\\.[\\s\\S]*\\z");
    }

    #[test]
    fn an_id_leads_to_an_index() {
        assert_eq!(index(&LogFilter::default()), "_id_");
        let filter = LogFilter {
            project_id: Some("p".into()),
            user_id: Some("u".into()),
            ..LogFilter::default()
        };
        assert_eq!(index(&filter), "user_id");
    }
}

//! Backpressure: the figures that `insert.sql` of the library reads. `schema/pressure.sql` computes delays and
//! refusals from them.

use async_trait::async_trait;

use super::{
    PostgresStore,
    connection::{arguments, statement},
};
use crate::{
    event::Seq,
    pressure::{Class, Figures, Gauge, Glance, Waiting},
    route::Pattern,
    store::{StoreError, sql::pressure},
};

#[async_trait]
impl Gauge for PostgresStore {
    async fn set_classes(&self, classes: &[Class]) -> Result<(), StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/pressure/set.sql"));
        let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
        let topics: Vec<String> = classes.iter().map(|class| expression(&class.topics)).collect();
        let limits = |limit: fn(&Class) -> Option<u64>| -> Vec<Option<i64>> {
            classes.iter().map(|class| limit(class).map(number)).collect()
        };
        let delays = classes
            .iter()
            .map(|class| class.limit.max_delay.as_millis() as i64);
        let arguments = arguments!(
            places(classes.len()),
            names,
            topics,
            limits(|class| class.limit.soft),
            limits(|class| class.limit.hard),
            delays.collect::<Vec<_>>()
        )?;
        self.connection.rows(&sql, arguments).await.map(drop)
    }

    async fn glance(&self, _enough: u64) -> Result<Glance, StoreError> {
        pressure::glance(&*self.connection, include_str!("sql/pressure/glance.sql")).await
    }

    async fn count(&self, at: Seq, limit: u64) -> Result<Waiting, StoreError> {
        let sql = include_str!("sql/pressure/count.sql");
        pressure::count(&*self.connection, sql, at, limit).await
    }

    async fn note(&self, figures: &Figures) -> Result<(), StoreError> {
        pressure::note(&*self.connection, figures).await
    }
}

fn places(count: usize) -> Vec<i16> {
    (0..i16::try_from(count).unwrap_or(i16::MAX)).collect()
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Patterns as one regular expression of PostgreSQL, so that SQL alone can find the class of a topic.
fn expression(patterns: &[Pattern]) -> String {
    if patterns.is_empty() {
        return String::new();
    }
    let patterns: Vec<String> = patterns
        .iter()
        .map(|pattern| {
            let tokens = pattern.as_str().split('.').map(|token| match token {
                "*" => "[^.]*".to_owned(),
                ">" => ".*".to_owned(),
                token => literal(token),
            });
            tokens.collect::<Vec<_>>().join("\\.")
        })
        .collect();
    format!("^({})$", patterns.join("|"))
}

/// Escapes every ASCII character that is not a letter or digit. Other characters have no special meaning.
fn literal(token: &str) -> String {
    let mut out = String::with_capacity(token.len());
    for sign in token.chars() {
        if sign.is_ascii() && !sign.is_ascii_alphanumeric() {
            out.push('\\');
        }
        out.push(sign);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_an_expression_that_means_the_same() {
        let of = |patterns: &[&str]| {
            let patterns: Vec<Pattern> = patterns.iter().map(|p| Pattern::new(p).unwrap()).collect();
            expression(&patterns)
        };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["report.>", "a.*.c-d"]), r"^(report\..*|a\.[^.]*\.c\-d)$");
        assert_eq!(of(&["(x|y)+.ü$"]), r"^(\(x\|y\)\+\.ü\$)$");
    }
}

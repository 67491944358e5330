//! Backpressure: the figures that `insert.sql` of the library reads. How far it is from them to a refusal stands in
//! `schema/pressure.sql`.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::pressure::Limit;
use sqlx::{Row, postgres::PgRow};

use super::{
    PostgresStore,
    connection::{arguments, statement},
};
use crate::{
    event::Seq,
    pressure::{Class, Figures, Gauge, Glance, Standing, TopicWaiting, Waiting},
    route::Pattern,
    store::StoreError,
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
        let sql = statement(self.connection.tables(), include_str!("sql/pressure/glance.sql"));
        let row = self.connection.row(&sql, arguments!()?).await?;
        let read = || -> Result<Glance, sqlx::Error> {
            let (at, low): (Seq, Seq) = (row.try_get(0)?, row.try_get(1)?);
            let age: Option<i64> = row.try_get(4)?;
            Ok(Glance {
                waiting: count(at.saturating_sub(low)),
                at,
                noted_at: row.try_get(2)?,
                noted_pending: count(row.try_get(3)?),
                age: age.map(|age| Duration::from_millis(count(age))),
            })
        };
        read().map_err(|e| self.connection.explain(e))
    }

    async fn count(&self, at: Seq, limit: u64) -> Result<Waiting, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/pressure/count.sql"));
        let rows = self.connection.rows(&sql, arguments!(number(limit))?).await?;
        let mut waiting = Waiting::default();
        let (mut counted, mut reached) = (0, 0);
        for row in &rows {
            let read = || -> Result<(String, i64, Seq, Option<i64>), sqlx::Error> {
                Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))
            };
            let (topic, n, last, oldest) = read().map_err(|e| self.connection.explain(e))?;
            counted += count(n);
            reached = reached.max(last);
            waiting.topics.push(TopicWaiting {
                topic,
                count: count(n),
                oldest: oldest.and_then(|micros| Timestamp::from_microsecond(micros).ok()),
            });
        }
        if counted >= limit {
            waiting.not_counted = count(at.saturating_sub(reached));
        }
        Ok(waiting)
    }

    async fn note(&self, figures: &Figures) -> Result<(), StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/pressure/note.sql"));
        let pending: Vec<i64> = figures
            .classes
            .iter()
            .map(|(pending, _)| number(*pending))
            .collect();
        let oldest = figures
            .classes
            .iter()
            .map(|(_, oldest)| oldest.map(Timestamp::as_microsecond));
        let arguments = arguments!(
            places(figures.classes.len()),
            pending,
            oldest.collect::<Vec<_>>(),
            figures.at,
            figures.drained
        )?;
        self.connection.rows(&sql, arguments).await.map(drop)
    }
}

impl PostgresStore {
    /// How the classes stand for producers, by their formula.
    pub(super) async fn standing(&self) -> Result<Vec<Standing>, StoreError> {
        let sql = statement(
            self.connection.tables(),
            include_str!("sql/pressure/standing.sql"),
        );
        let rows = self.connection.rows(&sql, arguments!()?).await?;
        let standing = |row: &PgRow| -> Result<Standing, sqlx::Error> {
            let limit = Limit {
                soft: row.try_get::<Option<i64>, _>(1)?.map(count),
                hard: row.try_get::<Option<i64>, _>(2)?.map(count),
                max_delay: Duration::from_millis(count(row.try_get(3)?)),
            };
            let oldest: Option<i64> = row.try_get(5)?;
            let oldest = oldest.map(|millis| Duration::from_millis(count(millis)));
            let pressure = limit.judge(row.try_get(0)?, count(row.try_get(4)?), oldest, row.try_get(6)?);
            Ok(pressure.into())
        };
        let standings: Result<_, _> = rows.iter().map(standing).collect();
        standings.map_err(|e| self.connection.explain(e))
    }
}

fn places(count: usize) -> Vec<i16> {
    (0..i16::try_from(count).unwrap_or(i16::MAX)).collect()
}

fn count(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Patterns as one regular expression of PostgreSQL, so that SQL alone can tell the class of a topic.
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

/// Everything in ASCII that is no letter or digit is escaped; the rest has no meaning of its own.
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

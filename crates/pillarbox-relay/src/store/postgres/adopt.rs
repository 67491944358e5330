//! Adopts a table: see [`Adoption`].
//!
//! `table` looks at the table, `columns` knows its columns and reads values from them, `script` makes the statements.
//!
//! The order of keys: the trigger is created first, and the outbox's sequence starts far above the number of rows, so
//! that earlier rows get lower seqs although they are copied later. No relay starts before all are copied.

mod columns;
mod script;
mod table;

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{Postgres, Row, Transaction};
use tokio::time::{Instant, sleep};

pub(super) use self::table::check;
use self::{
    columns::misfit,
    table::{Found, find, quoted, state},
};
use super::{
    PostgresStore,
    connection::{Connection, arguments, statement},
    schema,
};
use crate::{
    adoption::{Adopted, Adoption, LOCK_PATIENCE, Plan, Start},
    layout::{Field, Layout, Source},
    store::{StoreError, StoreErrorKind},
};

/// How many rows are copied in one transaction.
const PAGE: i64 = 5_000;
/// The first seq of a new row, if the table has fewer earlier rows to copy.
const NEW_ROWS_FROM: i64 = 1_000_000_000;

type Tx = Transaction<'static, Postgres>;

#[async_trait]
impl Adoption for PostgresStore {
    async fn plan(&self, layout: &Layout, start: Start) -> Result<Plan, StoreError> {
        let connection = &*self.connection;
        let tables = connection.tables();
        let mut tx = connection.begin().await?;
        let found = find(connection, &mut tx, layout).await?;
        let script = found.script(layout, tables);
        let mut adds = vec![
            format!("tables {}, {}_…", tables.name(), tables.name()),
            format!(
                "functions {} and {}",
                tables.name_beside("capture"),
                tables.name_beside("write_back")
            ),
            format!("a trigger on {}, after insert", layout.table),
        ];
        let mut sql = schema::sql(tables);
        sql += "\nbegin;\nset local lock_timeout = '1s'; -- If it fails, try again: transactions write to the table.\n";
        sql += &script.functions()?;
        if !found.has_trigger {
            from(layout, start)?;
            sql += &script.before_trigger(note(start).as_deref())?;
            if start != Start::Now {
                adds.push("a copy of each row that is not delivered yet".to_owned());
            }
        }
        sql += &script.trigger()?;
        sql += "commit;\n\n-- Then `pillarbox adopt --apply` copies the rows that exist. No relay starts before.\n";
        let mut warnings = warnings(layout);
        if found.has_trigger {
            warnings = unwritten(connection, &mut tx, layout)
                .await?
                .into_iter()
                .collect();
            if state(connection, &mut tx, layout).await?.is_copying {
                warnings.push(format!(
                    "rows of {} are still to be copied: run `pillarbox adopt --apply`",
                    layout.table
                ));
            }
        }
        Ok(Plan {
            adds,
            sql,
            adopted: found.has_trigger,
            warnings,
        })
    }

    async fn adopt(
        &self,
        layout: &Layout,
        start: Start,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Adopted, StoreError> {
        let connection = &*self.connection;
        let tables = connection.tables();
        // Mistakes are found before anything is created.
        self.plan(layout, start).await?;
        let mut done = schema::migrate(connection).await?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        done.push(loop {
            match self.connect(layout, start).await {
                Ok(line) => break line,
                Err(error) => let_writers_go_first(error, deadline, layout).await?,
            }
        });
        let mut tx = connection.begin().await?;
        let again = statement(tables, include_str!("sql/adopt/write_again.sql"));
        connection.rows_in(&mut tx, &again, arguments!()?).await?;
        connection.commit(tx).await?;
        let copied = self.copy(layout, progress).await?;
        if copied > 0 {
            done.push(format!("copied {copied} rows that were not delivered yet"));
        }
        Ok(Adopted { done, copied })
    }

    async fn undo(&self, layout: &Layout, force: bool) -> Result<Vec<String>, StoreError> {
        let connection = &*self.connection;
        let tables = connection.tables();
        let mut tx = connection.begin().await?;
        let sql = statement(tables, include_str!("sql/schema/state.sql"));
        let rows = connection.rows_in(&mut tx, &sql, arguments!()?).await?;
        let row = rows
            .first()
            .ok_or_else(|| connection.explain(sqlx::Error::RowNotFound))?;
        if !row.try_get::<bool, _>(0).map_err(|e| connection.explain(e))? {
            return Err(refused(format!(
                "{} is not adopted: there is nothing to undo",
                layout.table
            )));
        }
        if !force {
            let found = find(connection, &mut tx, layout).await.map_err(|error| {
                refused(format!(
                    "{error}. `--undo --force` removes the adoption without looking at what would be lost"
                ))
            })?;
            // An adoption that failed before the trigger has captured nothing.
            if found.has_trigger {
                unfinished(connection, &mut tx, layout, &found).await?;
            }
        }
        connection.commit(tx).await?;
        let undo = tables
            .render(include_str!("sql/adopt/undo.sql"))
            .replace("{adopted}", &quoted(layout)?);
        let script = format!(
            "set local lock_timeout = '1s';\n{undo}\n{}",
            schema::drop_sql(tables)
        );
        let deadline = Instant::now() + LOCK_PATIENCE;
        while let Err(error) = self.in_transaction(script.clone()).await {
            let_writers_go_first(error, deadline, layout).await?;
        }
        Ok(vec![
            format!("removed the trigger on {}", layout.table),
            format!("removed the tables {}, {}_…", tables.name(), tables.name()),
        ])
    }
}

impl PostgresStore {
    async fn in_transaction(&self, script: String) -> Result<(), StoreError> {
        let mut tx = self.connection.begin().await?;
        self.connection.script_in(&mut tx, script).await?;
        self.connection.commit(tx).await
    }

    /// Creates the functions and the trigger. The trigger needs a lock that waits for the transactions that write to the
    /// table, and others wait behind it: at most a second.
    async fn connect(&self, layout: &Layout, start: Start) -> Result<String, StoreError> {
        let connection = &*self.connection;
        let tables = connection.tables();
        let mut tx = connection.begin().await?;
        connection
            .script_in(&mut tx, "set local lock_timeout = '1s'".to_owned())
            .await?;
        // One adoption at a time.
        connection.script_in(&mut tx, schema::lock(tables)).await?;
        let found = find(connection, &mut tx, layout).await?;
        let script = found.script(layout, tables);
        connection.script_in(&mut tx, script.functions()?).await?;
        if !found.has_trigger {
            from(layout, start)?;
            let before = script.before_trigger(note(start).as_deref())?;
            connection.script_in(&mut tx, before).await?;
        }
        connection.script_in(&mut tx, script.trigger()?).await?;
        connection.commit(tx).await?;
        Ok(match found.has_trigger {
            true => format!(
                "{} was adopted already: its functions are those of this build",
                layout.table
            ),
            false => format!("created a trigger on {}", layout.table),
        })
    }

    /// Copies the rows that were there before the trigger. After an interruption it continues.
    async fn copy(&self, layout: &Layout, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<u64, StoreError> {
        let connection = &*self.connection;
        let tables = connection.tables();
        let mut tx = connection.begin().await?;
        let found = find(connection, &mut tx, layout).await?;
        let state = state(connection, &mut tx, layout).await?;
        if !state.is_copying {
            return Ok(0);
        }
        // What was asked for first counts.
        let start = noted(state.note.as_deref());
        let script = found.script(layout, tables);
        let mut total = backlog_size(connection, &mut tx).await?;
        if total == 0 {
            let whole_table = "set local enable_seqscan = on; set local enable_hashjoin = on; set local enable_bitmapscan = on";
            connection.script_in(&mut tx, whole_table.to_owned()).await?;
            connection
                .script_in(&mut tx, script.backlog(&from(layout, start)?)?)
                .await?;
            total = backlog_size(connection, &mut tx).await?;
        }
        if total >= NEW_ROWS_FROM {
            return Err(refused(format!(
                "{} has too many rows that are not delivered: {total}",
                layout.table
            )));
        }
        connection.commit(tx).await?;
        let page = script.copy()?.into();
        let (mut after, mut copied) = (0_i64, 0_u64);
        loop {
            let mut tx = connection.begin().await?;
            let rows = connection
                .rows_in(&mut tx, &page, arguments!(after, PAGE)?)
                .await?;
            let row = rows
                .first()
                .ok_or_else(|| connection.explain(sqlx::Error::RowNotFound))?;
            let read =
                || -> Result<(Option<i64>, i64), sqlx::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
            let (last, count) = read().map_err(|e| connection.explain(e))?;
            connection.commit(tx).await?;
            let Some(last) = last else { break };
            copied += count.unsigned_abs();
            after = last;
            progress(after.unsigned_abs(), total.unsigned_abs());
        }
        let mut tx = connection.begin().await?;
        let drop = format!("drop table if exists {}", tables.beside("backlog"));
        connection.script_in(&mut tx, drop).await?;
        connection.commit(tx).await?;
        Ok(copied)
    }
}

/// What to say of the rows that could not be brought up to date.
async fn unwritten(
    connection: &Connection,
    tx: &mut Tx,
    layout: &Layout,
) -> Result<Option<String>, StoreError> {
    let sql = statement(connection.tables(), include_str!("sql/adopt/unwritten.sql"));
    let rows = connection.rows_in(tx, &sql, arguments!()?).await?;
    let row = rows
        .first()
        .ok_or_else(|| connection.explain(sqlx::Error::RowNotFound))?;
    let read = || -> Result<(i64, Option<String>), sqlx::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
    let (count, error) = read().map_err(|e| connection.explain(e))?;
    Ok((count > 0).then(|| {
        format!(
            "{} does not show the state of {count} of its events, because it refused what a relay wrote (the last time: {}). \
             Correct the reason, and run `pillarbox adopt --apply` again",
            layout.table,
            error.unwrap_or_default()
        )
    }))
}

/// The start, for the comment on the list of rows to copy. `None`: nothing is copied.
fn note(start: Start) -> Option<String> {
    match start {
        Start::Everything => Some("everything".to_owned()),
        Start::Now => None,
        Start::From(time) => Some(time.to_string()),
    }
}

fn noted(note: Option<&str>) -> Start {
    note.and_then(|note| note.parse().ok())
        .map_or(Start::Everything, Start::From)
}

/// Refuses to undo what would be lost, or sent again by the old worker.
async fn unfinished(
    connection: &Connection,
    tx: &mut Tx,
    layout: &Layout,
    found: &Found,
) -> Result<(), StoreError> {
    let tables = connection.tables();
    let sql = found.script(layout, tables).unfinished()?.into();
    let rows = connection.rows_in(tx, &sql, arguments!()?).await?;
    let row = rows
        .first()
        .ok_or_else(|| connection.explain(sqlx::Error::RowNotFound))?;
    let read = || -> Result<(i64, i64, i64), sqlx::Error> {
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    };
    let (relays, lost, unwritten) = read().map_err(|e| connection.explain(e))?;
    let mut reasons = Vec::new();
    if relays > 0 {
        reasons.push(format!(
            "{relays} relays are running: stop them first (one that was killed counts for some seconds)"
        ));
    }
    if lost > 0 {
        reasons.push(format!(
            "{lost} events are not delivered, and no row of {} says so: let a relay deliver them first",
            layout.table
        ));
    }
    if unwritten > 0 {
        reasons.push(format!(
            "{unwritten} rows of {} do not show the state of their events, so the old worker would send them again: run `pillarbox adopt --apply` first",
            layout.table
        ));
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(refused(format!(
            "{}. `--force` undoes it all the same",
            reasons.join("; ")
        ))),
    }
}

/// Waits if writers of the adopted table kept its lock. Any other error, or one after the deadline, is returned.
async fn let_writers_go_first(
    error: StoreError,
    deadline: Instant,
    layout: &Layout,
) -> Result<(), StoreError> {
    if !is_lock_timeout(&error) {
        return Err(error);
    }
    if Instant::now() > deadline {
        return Err(refused(format!(
            "transactions that write to {} leave no moment for the trigger: look for long ones in pg_stat_activity, and try again",
            layout.table
        )));
    }
    sleep(Duration::from_millis(500)).await;
    Ok(())
}

fn refused(text: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, text)
}

/// How many rows are listed to be copied.
async fn backlog_size(connection: &Connection, tx: &mut Tx) -> Result<i64, StoreError> {
    let sql = statement(connection.tables(), include_str!("sql/adopt/backlog_size.sql"));
    let rows = connection.rows_in(tx, &sql, arguments!()?).await?;
    let row = rows
        .first()
        .ok_or_else(|| connection.explain(sqlx::Error::RowNotFound))?;
    let size: Option<i64> = row.try_get(0).map_err(|e| connection.explain(e))?;
    Ok(size.unwrap_or(0))
}

/// Which of the earlier rows to copy: a condition on a row `t`.
fn from(layout: &Layout, start: Start) -> Result<String, StoreError> {
    match start {
        Start::Everything if layout.states.are_shown() => Ok("true".to_owned()),
        Start::Everything => Err(misfit(format!(
            "the rows of {} do not show whether they were delivered: say where to start, with `--from now` or `--from TIME`",
            layout.table
        ))),
        Start::Now => Ok("false".to_owned()),
        Start::From(time) => {
            let Some(Source::Column(created)) = layout.fields.get(&Field::CreatedAt) else {
                return Err(misfit(
                    "the layout has no `fields.created_at`, so rows have no time: use `--from now`",
                ));
            };
            let created = columns::column(created)?;
            Ok(format!("t.{created} >= '{time}'"))
        }
    }
}

/// What an operator should know before an adoption.
fn warnings(layout: &Layout) -> Vec<String> {
    let mut warnings = vec![format!(
        "stop the worker that delivers {} now: otherwise both deliver its events",
        layout.table
    )];
    if !layout.states.are_shown() && !layout.delete_published {
        warnings.push(
            "the rows do not show whether they were delivered, and they stay in the table: delete them yourself, or set \
             `outbox.layout.delete_published`"
                .to_owned(),
        );
    }
    warnings
}

/// The lock on the adopted table was not free in time.
fn is_lock_timeout(error: &StoreError) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return error
                .as_database_error()
                .is_some_and(|refusal| refusal.code().as_deref() == Some("55P03"));
        }
        cause = error.source();
    }
    false
}

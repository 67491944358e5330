//! Creates the tables, and checks that they exist.

use std::{cmp::Ordering, ops::RangeInclusive};

use pillarbox::table::Tables;
use sqlx::{Postgres, Row, Transaction};

use super::{
    assumptions::Assumptions,
    connection::{Connection, arguments, statement},
    enqueue,
    error::missing,
};
use crate::store::{StoreError, StoreErrorKind};

/// The version that this build reads and writes.
const VERSION: i32 = 8;
/// The versions that the migration can upgrade.
const UPGRADABLE: RangeInclusive<i32> = 2..=7;

/// The whole migration, as `psql` runs it.
pub(super) fn sql(tables: &Tables) -> String {
    format!(
        "begin;\n{};\n\n{}\ncommit;\n",
        lock(tables),
        script(tables).trim_end()
    )
}

/// The tables, then the functions and triggers.
fn script(tables: &Tables) -> String {
    tables.render(include_str!("sql/schema/create.sql")) + "\n" + &functions(tables)
}

/// Removes everything that a migration created.
pub(super) fn drop_sql(tables: &Tables) -> String {
    let functions = [
        "own_txid",
        "truncated",
        "pressure_of",
        "mind_pressure",
        "enqueue",
        "refusal",
    ]
    .map(|function| format!("'{}'", tables.index(function).replace('"', "")));
    tables
        .render(include_str!("sql/schema/drop.sql"))
        .replace("{functions}", &functions.join(", "))
}

/// Creates or replaces them.
fn functions(tables: &Tables) -> String {
    let guards = tables.render(include_str!("sql/schema/guards.sql"));
    let pressure = tables.render(include_str!("sql/schema/pressure.sql"));
    guards + "\n" + &pressure + "\n" + &enqueue::sql(tables)
}

/// Creates what is missing or upgrades it, in one transaction, one migration at a time.
pub(super) async fn migrate(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let tables = connection.tables();
    let mut tx = connection.begin().await?;
    connection.script_in(&mut tx, lock(tables)).await?;
    let (has_events, has_meta) = state(connection, &mut tx).await?;
    let mut before = None;
    if has_meta {
        let (version, _) = version(connection, &mut tx).await?;
        if !UPGRADABLE.contains(&version) {
            check_version(tables, version)?;
            return make_functions(connection, tx, version).await;
        }
        before = Some(version);
    } else if has_events {
        return Err(StoreError::new(
            StoreErrorKind::Refused,
            format!(
                "there is a table {} that Pillarbox did not make: choose another name in `outbox.database.table_name`",
                tables.name()
            ),
        ));
    }
    connection.script_in(&mut tx, script(tables)).await?;
    let function = function(connection, &mut tx).await?.told(tables);
    connection.commit(tx).await?;
    if let Some(before) = before {
        let upgraded = format!("the outbox was at version {before} and is at version {VERSION} now");
        return Ok([upgraded].into_iter().chain(function).collect());
    }
    let beside = [
        "parked",
        "lanes",
        "leases",
        "relays",
        "recoveries",
        "records",
        "log",
        "pressure",
        "meta",
    ]
    .map(|suffix| tables.beside(suffix));
    Ok([tables.events(), tables.dead()]
        .into_iter()
        .chain(beside)
        .map(|name| format!("created table {}", name.replace('"', "")))
        .chain(function)
        .chain([format!("the outbox is at version {VERSION}")])
        .collect())
}

/// The tables are up to date. The functions are replaced by those of this build. The right to create the one for
/// applications may have been granted only now.
async fn make_functions(
    connection: &Connection,
    mut tx: Transaction<'static, Postgres>,
    version: i32,
) -> Result<Vec<String>, StoreError> {
    let tables = connection.tables();
    let found = function(connection, &mut tx).await?;
    connection.script_in(&mut tx, functions(tables)).await?;
    connection.commit(tx).await?;
    let mut done = vec![format!("nothing to do: version {version} is there")];
    if !found.there && found.obstacle.is_none() {
        done = vec![made(tables)];
    }
    Ok(done)
}

/// The missing parts, and what to ask for: one sentence each.
pub(super) async fn missing_parts(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut tx = connection.begin().await?;
    let found = function(connection, &mut tx).await?;
    if found.there {
        return Ok(Vec::new());
    }
    let obstacle = found.obstacle.unwrap_or_default();
    Ok(vec![format!(
        "the function pillarbox.enqueue, for applications in other languages, does not exist: {obstacle}. Then run `pillarbox migrate` again"
    )])
}

/// The state of the function for applications in other languages.
struct Function {
    there: bool,
    /// What keeps this role from creating or replacing it.
    obstacle: Option<String>,
}

impl Function {
    /// What was done with it, if it exists.
    fn told(self, tables: &Tables) -> Option<String> {
        match self.obstacle {
            None => Some(made(tables)),
            Some(obstacle) if self.there => Some(format!(
                "left the function pillarbox.enqueue as it is: {obstacle}"
            )),
            Some(_) => None,
        }
    }
}

fn made(tables: &Tables) -> String {
    format!("created function {}", enqueue::name(tables).replace('"', ""))
}

async fn function(
    connection: &Connection,
    tx: &mut Transaction<'static, Postgres>,
) -> Result<Function, StoreError> {
    let Some(sql) = enqueue::state_sql(connection.tables()) else {
        return Ok(Function {
            there: true,
            obstacle: None,
        });
    };
    let sql = statement(connection.tables(), &sql);
    one_row(connection, tx, &sql, |row| {
        Ok(Function {
            there: row.try_get(0)?,
            obstacle: row.try_get(1)?,
        })
    })
    .await
}

/// Checks that the outbox exists, has this version, is in the cluster in which it was created, and is as discovery
/// assumes. After a restore into another cluster, its xids are rebased.
pub(super) async fn check(connection: &Connection, assumptions: &Assumptions) -> Result<(), StoreError> {
    let mut tx = connection.begin().await?;
    let (has_events, has_meta) = state(connection, &mut tx).await?;
    if !has_events || !has_meta {
        return Err(missing(connection.tables().name()));
    }
    let (version, moved) = version(connection, &mut tx).await?;
    check_version(connection.tables(), version)?;
    if moved {
        tracing::warn!("the outbox was restored from another cluster: rebasing its transaction ids");
        let rebase = connection.tables().render(include_str!("sql/schema/rebase.sql"));
        connection.script_in(&mut tx, rebase).await?;
    }
    assumptions.check(connection, &mut tx, moved).await?;
    connection.commit(tx).await
}

pub(super) fn is_current(version: i32) -> bool {
    version == VERSION
}

/// One migration at a time in this database, for this outbox.
pub(super) fn lock(tables: &Tables) -> String {
    format!(
        "select pg_advisory_xact_lock(hashtextextended('pillarbox migrate {}', 0))",
        tables.events()
    )
}

async fn state(
    connection: &Connection,
    tx: &mut Transaction<'static, Postgres>,
) -> Result<(bool, bool), StoreError> {
    let sql = statement(connection.tables(), include_str!("sql/schema/state.sql"));
    one_row(connection, tx, &sql, |row| Ok((row.try_get(0)?, row.try_get(1)?))).await
}

async fn version(
    connection: &Connection,
    tx: &mut Transaction<'static, Postgres>,
) -> Result<(i32, bool), StoreError> {
    let sql = statement(connection.tables(), include_str!("sql/schema/version.sql"));
    one_row(connection, tx, &sql, |row| Ok((row.try_get(0)?, row.try_get(1)?))).await
}

async fn one_row<T>(
    connection: &Connection,
    tx: &mut Transaction<'static, Postgres>,
    sql: &super::connection::Sql,
    read: impl Fn(&sqlx::postgres::PgRow) -> Result<T, sqlx::Error>,
) -> Result<T, StoreError> {
    let rows = connection.rows_in(tx, sql, arguments!()?).await?;
    rows.first()
        .ok_or(sqlx::Error::RowNotFound)
        .and_then(read)
        .map_err(|e| connection.explain(e))
}

fn check_version(tables: &Tables, version: i32) -> Result<(), StoreError> {
    let (kind, advice) = match version.cmp(&VERSION) {
        Ordering::Equal => return Ok(()),
        Ordering::Less if UPGRADABLE.contains(&version) => {
            (StoreErrorKind::NotMigrated, "run `pillarbox migrate`")
        }
        // None of these was ever released.
        Ordering::Less => (
            StoreErrorKind::Misconfigured,
            "drop its tables and run `pillarbox migrate`, or choose another name in `outbox.database.table_name`",
        ),
        Ordering::Greater => (StoreErrorKind::NotMigrated, "use a newer pillarbox"),
    };
    Err(StoreError::new(
        kind,
        format!(
            "the outbox {} is at version {version} and this pillarbox needs {VERSION}: {advice}",
            tables.name()
        ),
    ))
}

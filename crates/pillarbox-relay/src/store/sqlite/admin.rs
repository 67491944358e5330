//! What people ask of an SQLite outbox.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{EnqueueError, Enqueued, Event, Limits};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteRow};

use super::{
    SqliteStore,
    connection::{Connections, now},
    row, taken,
};
use crate::catalog::{EXAMPLE_BYTES_MAX, KINDS_MAX, Kind, Look};
use crate::event::Seq;
use crate::store::{
    PageLimit, StoreError, StoreErrorKind,
    admin::{Admin, AdminEnqueueError, RECENT_PAYLOAD_BYTES_MAX, Recent, RelayStatus, StoreStatus},
    trouble,
};

const VERSION: u32 = 5;
/// What the scripts bring up to date.
const UPGRADABLE: [u32; 3] = [2, 3, 4];

#[async_trait]
impl Admin for SqliteStore {
    fn migration_sql(&self) -> String {
        format!(
            "pragma journal_mode = wal;\n\n{}",
            self.connections.statements.schema_create.as_str()
        )
    }

    async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        let at = &*self.connections;
        let made = !at.path.exists();
        let mut connection = at.create().await?;
        let mut tx = connection
            .begin_with("begin immediate")
            .await
            .map_err(|e| at.error(e))?;
        let found = version(at, &mut *tx).await;
        let table = at.tables.name();
        let mut upgraded = None;
        match found {
            Ok(Some(version)) if UPGRADABLE.iter().any(|&older| is(&version, older)) => {
                if is(&version, 2) {
                    sqlx::raw_sql(at.statements.schema_from_2.clone())
                        .execute(&mut *tx)
                        .await
                        .map_err(|e| at.error(e))?;
                }
                add_troubles(at, &mut tx).await?;
                upgraded = Some(version);
            }
            Ok(Some(version)) if is(&version, VERSION) => {
                return Ok(vec![format!(
                    "the outbox `{table}` is up to date (version {VERSION})"
                )]);
            }
            Ok(Some(version)) => return Err(other_version(table, &version)),
            Ok(None) => {}
            Err(error) if error.kind == StoreErrorKind::NotMigrated => {}
            Err(error) => return Err(error),
        }
        sqlx::raw_sql(at.statements.schema_create.clone())
            .execute(&mut *tx)
            .await
            .map_err(|e| at.error(e))?;
        tx.commit().await.map_err(|e| at.error(e))?;
        connection.close().await.map_err(|e| at.error(e))?;
        if let Some(before) = upgraded {
            return Ok(vec![format!(
                "the outbox `{table}` was at version {before} and is at version {VERSION} now"
            )]);
        }
        let mut done = Vec::new();
        if made {
            done.push(format!("made the database {}, in WAL mode", at.path.display()));
        }
        done.push(format!(
            "made the outbox `{table}` (version {VERSION}) and the tables beside it"
        ));
        Ok(done)
    }

    async fn low_mark(&self) -> Result<Seq, StoreError> {
        let at = &*self.connections;
        sqlx::query_scalar(at.statements.admin_low_mark.clone())
            .fetch_one(at.reader())
            .await
            .map_err(|e| at.error(e))
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let at = &*self.connections;
        let now = now();
        type Counts = (i64, i64, i64, i64, i64, u16, Option<i64>);
        let (pending, failed, held, delayed, dead, lanes_held, oldest): Counts =
            sqlx::query_as(at.statements.admin_status.clone())
                .bind(now)
                .fetch_one(at.reader())
                .await
                .map_err(|e| at.error(e))?;
        let relays: Vec<(String, String, i64, u16, String)> =
            sqlx::query_as(at.statements.admin_relays.clone())
                .bind(now)
                .fetch_all(at.reader())
                .await
                .map_err(|e| at.error(e))?;
        let relays = relays
            .into_iter()
            .map(|(id, name, seen_at, lanes, troubles)| RelayStatus {
                id: id.parse().unwrap_or_default(),
                name,
                lanes,
                last_seen: since(seen_at, now),
                troubles: trouble::from_json(&troubles),
            });
        Ok(StoreStatus {
            pending: pending.unsigned_abs(),
            failed: failed.unsigned_abs(),
            held: held.unsigned_abs(),
            delayed: delayed.unsigned_abs(),
            dead: dead.unsigned_abs(),
            oldest_age: oldest.map(|at| since(at, now)),
            lanes_held,
            relays: relays.collect(),
            pressure: self.standing().await?,
        })
    }

    async fn recent(&self, count: usize) -> Result<Vec<Recent>, StoreError> {
        let at = &*self.connections;
        let limit = PageLimit {
            events: count,
            bytes: usize::MAX,
            payload_bytes_max: RECENT_PAYLOAD_BYTES_MAX,
        };
        let rows = sqlx::query(at.statements.admin_recent.clone())
            .bind(i64::try_from(count).unwrap_or(i64::MAX))
            .bind(RECENT_PAYLOAD_BYTES_MAX as i64)
            .fetch_all(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let mut recent = Vec::with_capacity(rows.len());
        for row in rows.iter().rev() {
            if let Ok(event) = row::event(row, limit).map_err(|e| at.error(e))? {
                let status = row.try_get(row::STATUS).map_err(|e| at.error(e))?;
                recent.push(Recent { event, status });
            }
        }
        Ok(recent)
    }

    async fn kinds(&self, last: usize) -> Result<Look, StoreError> {
        let at = &*self.connections;
        let rows = sqlx::query(at.statements.admin_kinds.clone())
            .bind(i64::try_from(last).unwrap_or(i64::MAX))
            .bind(KINDS_MAX as i64)
            .bind(EXAMPLE_BYTES_MAX as i64)
            .fetch_all(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        look(&rows).map_err(|e| at.error(e))
    }

    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        let at = &*self.connections;
        let outbox = at.outbox.clone().limits(limits.clone());
        let mut tx = at.begin().await?;
        at.counted(events.len() as u64);
        let enqueued = match outbox.enqueue_all(&mut tx, events).await {
            Ok(enqueued) => enqueued,
            Err(EnqueueError::Database(error)) => match error.downcast::<sqlx::Error>() {
                Ok(error) => return Err(at.error(*error).into()),
                Err(error) => return Err(EnqueueError::Database(error).into()),
            },
            Err(error) => return Err(error.into()),
        };
        at.commit(tx).await?;
        Ok(enqueued)
    }
}

/// Every version before this column's has the table without it.
async fn add_troubles(at: &Connections, tx: &mut SqliteConnection) -> Result<(), StoreError> {
    let there: bool = sqlx::query_scalar(at.statements.schema_has_troubles.clone())
        .bind(at.tables.name_beside("relays"))
        .fetch_one(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    if there {
        return Ok(());
    }
    let add = sqlx::raw_sql(at.statements.schema_add_troubles.clone());
    add.execute(&mut *tx).await.map_err(|e| at.error(e)).map(drop)
}

/// The first two columns say of all of them how many there are and how old. What a stranger wrote may be null anywhere.
fn look(rows: &[SqliteRow]) -> Result<Look, sqlx::Error> {
    let text = |row: &SqliteRow, column: usize| row.try_get::<Option<String>, _>(column);
    let number = |row: &SqliteRow, column: usize| row.try_get::<Option<i64>, _>(column);
    let time = |row: &SqliteRow, column: usize| {
        let micros = number(row, column)?.unwrap_or_default();
        Ok::<_, sqlx::Error>(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH))
    };
    let kind = |row: &SqliteRow| {
        Ok(Kind {
            event_type: text(row, 2)?.unwrap_or_default(),
            schema_version: i32::try_from(number(row, 3)?.unwrap_or_default()).unwrap_or_default(),
            topic: text(row, 4)?.unwrap_or_default(),
            stream: text(row, 5)?,
            count: number(row, 6)?.unwrap_or_default().unsigned_abs(),
            last_seen: time(row, 7)?,
            aggregate_type: text(row, 8)?.unwrap_or_default(),
            payload: row.try_get::<Option<Vec<u8>>, _>(9)?.map(Into::into),
        })
    };
    let Some(first) = rows.first() else {
        return Ok(Look::default());
    };
    Ok(Look {
        events: number(first, 0)?.unwrap_or_default().unsigned_abs(),
        since: Some(time(first, 1)?),
        kinds: rows.iter().map(kind).collect::<Result<_, sqlx::Error>>()?,
    })
}

/// Is the outbox there, of this version?
pub(super) async fn check(at: &Connections) -> Result<(), StoreError> {
    let table = at.tables.name();
    match version(at, at.reader()).await? {
        Some(version) if is(&version, VERSION) => taken::check(at).await,
        Some(version) if UPGRADABLE.iter().any(|&older| is(&version, older)) => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!(
                "the outbox `{table}` is at version {version}, this pillarbox needs {VERSION}: run `pillarbox migrate`"
            ),
        )),
        Some(version) => Err(other_version(table, &version)),
        None => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!("the outbox `{table}` was not made to its end: run `pillarbox migrate`"),
        )),
    }
}

async fn version<'c, E>(at: &Connections, connection: E) -> Result<Option<String>, StoreError>
where
    E: sqlx::Executor<'c, Database = sqlx::Sqlite>,
{
    sqlx::query_scalar(at.statements.schema_version.clone())
        .fetch_optional(connection)
        .await
        .map_err(|e| at.error(e))
}

fn is(version: &str, expected: u32) -> bool {
    version.parse() == Ok(expected)
}

/// No migration leads from it to this one.
fn other_version(table: &str, version: &str) -> StoreError {
    let what_to_do = match version.parse::<u32>() {
        Ok(earlier) if earlier < VERSION => {
            "which was made before the first release and can't be brought up to date: make a new one, in another file or under another name in `outbox.database.table_name`"
        }
        _ => "use the pillarbox that made it, or a later one",
    };
    StoreError::new(
        StoreErrorKind::Misconfigured,
        format!(
            "the outbox `{table}` has version {version}, this pillarbox knows version {VERSION}: {what_to_do}"
        ),
    )
}

fn since(at: i64, now: i64) -> Duration {
    Duration::from_micros(u64::try_from(now - at).unwrap_or(0))
}

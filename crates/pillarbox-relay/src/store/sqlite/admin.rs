//! Administration of an SQLite outbox.

use async_trait::async_trait;
use pillarbox::{Enqueued, Event, Limits};
use sqlx::{Connection, Row, SqliteConnection};

use super::{SqliteStore, assumptions, connection::Connections, row};
use crate::catalog::Look;
use crate::event::Seq;
use crate::store::{
    PageLimit, Sample, StoreError, StoreErrorKind,
    admin::{Admin, AdminEnqueueError, RECENT_PAYLOAD_BYTES_MAX, Recent, StoreStatus},
    sql,
};

const VERSION: u32 = 8;
/// The versions that the scripts can upgrade.
const UPGRADABLE: [u32; 6] = [2, 3, 4, 5, 6, 7];

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
        let (mut upgraded, mut up_to_date) = (None, false);
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
            // A table that was dropped is created again.
            Ok(Some(version)) if is(&version, VERSION) => up_to_date = true,
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
        if up_to_date {
            return Ok(vec![format!(
                "the outbox `{table}` is up to date (version {VERSION})"
            )]);
        }
        if let Some(before) = upgraded {
            return Ok(vec![format!(
                "the outbox `{table}` was at version {before} and is at version {VERSION} now"
            )]);
        }
        let mut done = Vec::new();
        if made {
            done.push(format!("created the database {}, in WAL mode", at.path.display()));
        }
        done.push(format!(
            "created the outbox `{table}` (version {VERSION}) and the tables beside it"
        ));
        Ok(done)
    }

    async fn sample(&self) -> Result<Sample, StoreError> {
        let standing = include_str!("sql/pressure/standing.sql");
        Ok(Sample {
            pressure: sql::pressure::standing(&*self.connections, standing).await?,
            ..sql::admin::sample(&*self.connections, include_str!("sql/admin/sample.sql")).await?
        })
    }

    async fn low_mark(&self) -> Result<Seq, StoreError> {
        sql::admin::low_mark(&*self.connections, include_str!("sql/admin/low_mark.sql")).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let connections = &*self.connections;
        let (counts, relays) = (
            include_str!("sql/admin/status.sql"),
            include_str!("sql/admin/relays.sql"),
        );
        let standing = include_str!("sql/pressure/standing.sql");
        Ok(StoreStatus {
            pressure: sql::pressure::standing(connections, standing).await?,
            ..sql::admin::status(connections, counts, relays).await?
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
        sql::admin::kinds(&*self.connections, include_str!("sql/admin/kinds.sql"), last).await
    }

    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        let at = &*self.connections;
        let outbox = at.outbox.clone().limits(limits.clone());
        let mut tx = at.begin().await?;
        at.counted(events.len() as u64);
        let enqueued = outbox.enqueue_all(&mut tx, events).await;
        let enqueued = enqueued.map_err(|error| sql::admin::enqueue_error(at, error))?;
        at.commit(tx).await?;
        Ok(enqueued)
    }
}

/// Earlier versions have this table without this column.
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

/// Checks that the outbox exists and has this version.
pub(super) async fn check(at: &Connections) -> Result<(), StoreError> {
    let table = at.tables.name();
    match version(at, at.reader()).await? {
        Some(version) if is(&version, VERSION) => assumptions::check(at).await,
        Some(version) if UPGRADABLE.iter().any(|&older| is(&version, older)) => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!(
                "the outbox `{table}` is at version {version}, this pillarbox needs {VERSION}: run `pillarbox migrate`"
            ),
        )),
        Some(version) => Err(other_version(table, &version)),
        None => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!("the outbox `{table}` was not created completely: run `pillarbox migrate`"),
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

/// The error for a version that no migration can upgrade.
fn other_version(table: &str, version: &str) -> StoreError {
    let what_to_do = match version.parse::<u32>() {
        Ok(earlier) if earlier < VERSION => {
            "it was created before the first release and can't be upgraded: create a new one, in another file or under another name in `outbox.database.table_name`"
        }
        _ => "use the pillarbox that created it, or a later one",
    };
    StoreError::new(
        StoreErrorKind::Misconfigured,
        format!(
            "the outbox `{table}` has version {version}, this pillarbox knows version {VERSION}: {what_to_do}"
        ),
    )
}

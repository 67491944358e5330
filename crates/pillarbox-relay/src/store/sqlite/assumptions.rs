//! Discovery assumes that seqs only grow. SQLite keeps the last one in a table that any program can write, and a
//! restored backup has an older one. Then the low marks and the cursors of running relays are invalid.
//!
//! The positions of the event log only grow, too. If its table was dropped and created again, their counter is raised to
//! the end of what has expired. If it ends before what this relay's readers have seen, it has lost entries, and goes on far
//! above all that were handed out. Otherwise readers would take new entries for those that they have seen.

use std::sync::atomic::Ordering;

use sqlx::SqliteConnection;

use super::connection::{Connections, now};
use crate::{
    event::Seq,
    store::{StoreError, StoreErrorKind},
};

/// Checks that the last assigned seq is not below a low mark. If it is, every relay starts over.
pub(super) async fn check(at: &Connections) -> Result<(), StoreError> {
    let Found {
        taken,
        mark,
        log_is_behind,
    } = look(at).await?;
    if log_is_behind {
        raise_log(at).await?;
    }
    if taken < mark {
        start_over(at, taken, mark).await?;
    }
    Ok(())
}

/// The same for a reader that has read up to `after`.
pub(super) async fn check_reader(at: &Connections, after: Seq) -> Result<(), StoreError> {
    let Found { taken, mark, .. } = look(at).await?;
    if taken >= after {
        return Ok(());
    }
    start_over(at, taken, mark.max(after)).await?;
    Err(StoreError::new(
        StoreErrorKind::Fenced,
        "the sequence of the outbox went back: reading again from its first event",
    ))
}

struct Found {
    /// The last seq that was taken, and the highest low mark.
    taken: Seq,
    mark: Seq,
    log_is_behind: bool,
}

async fn look(at: &Connections) -> Result<Found, StoreError> {
    let look = sqlx::query_as(at.statements.assumptions_look.clone())
        .bind(at.tables.name())
        .bind(at.tables.name_beside("log"));
    let (taken, mark, log_is_behind) = look.fetch_one(at.reader()).await.map_err(|e| at.error(e))?;
    Ok(Found {
        taken,
        mark,
        log_is_behind,
    })
}

async fn raise_log(at: &Connections) -> Result<(), StoreError> {
    tracing::warn!("the counter of the event log's positions is behind the log: raising it");
    let log = at.tables.name_beside("log");
    let mut tx = at.begin().await?;
    at.counted(2);
    for statement in [
        &at.statements.assumptions_forget_log,
        &at.statements.assumptions_raise_log,
    ] {
        sqlx::query(statement.clone())
            .bind(&log)
            .execute(&mut *tx)
            .await
            .map_err(|e| at.error(e))?;
    }
    at.commit(tx).await
}

/// Checks before entries are appended that no position comes a second time. In the transaction that appends: no reader can
/// see more than what was committed before it.
pub(super) async fn check_log(at: &Connections, tx: &mut SqliteConnection) -> Result<(), StoreError> {
    let handed_out = at.handed_out.load(Ordering::Relaxed);
    if handed_out == 0 {
        return Ok(());
    }
    at.counted(1);
    let (taken, ended): (i64, i64) = sqlx::query_as(at.statements.assumptions_log_ended.clone())
        .bind(at.tables.name_beside("log"))
        .fetch_one(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    if taken.max(ended) >= handed_out {
        return Ok(());
    }
    tracing::warn!(
        "the event log has lost its latest entries: new ones get positions above all that were handed out, and readers of \
         lost ones are told"
    );
    at.counted(1);
    sqlx::query(at.statements.assumptions_leap_log.clone())
        .bind(now())
        .bind(ended)
        .bind(handed_out)
        .execute(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    Ok(())
}

async fn start_over(at: &Connections, taken: Seq, mark: Seq) -> Result<(), StoreError> {
    tracing::warn!(
        taken,
        settled = mark,
        "the sequence of the outbox went back: reading it again from its first event"
    );
    let mut tx = at.begin().await?;
    at.counted(2);
    sqlx::raw_sql(at.statements.assumptions_reset.clone())
        .execute(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    at.commit(tx).await
}

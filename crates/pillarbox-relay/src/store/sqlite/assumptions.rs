//! Discovery assumes that seqs only grow. SQLite keeps the last one in a table that any program can write, and a
//! restored backup has an older one. Then the low marks and the cursors of running relays are invalid.

use super::connection::Connections;
use crate::{
    event::Seq,
    store::{StoreError, StoreErrorKind},
};

/// Checks that the last assigned seq is not below a low mark. If it is, every relay starts over.
pub(super) async fn check(at: &Connections) -> Result<(), StoreError> {
    let (taken, mark) = look(at).await?;
    if taken < mark {
        start_over(at, taken, mark).await?;
    }
    Ok(())
}

/// The same for a reader that has read up to `after`.
pub(super) async fn check_reader(at: &Connections, after: Seq) -> Result<(), StoreError> {
    let (taken, mark) = look(at).await?;
    if taken >= after {
        return Ok(());
    }
    start_over(at, taken, mark.max(after)).await?;
    Err(StoreError::new(
        StoreErrorKind::Fenced,
        "the sequence of the outbox went back: reading again from its first event",
    ))
}

async fn look(at: &Connections) -> Result<(Seq, Seq), StoreError> {
    sqlx::query_as(at.statements.assumptions_look.clone())
        .bind(at.tables.name())
        .fetch_one(at.reader())
        .await
        .map_err(|e| at.error(e))
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

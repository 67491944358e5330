//! Dead letters: looking at them, and what people do about them.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::Limits;
use serde_json::{Value, json};
use sqlx::{
    Row, SqlStr, Sqlite, Transaction,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use uuid::Uuid;

use super::{
    SqliteStore,
    connection::{Connections, micros, now, time},
    discover::{json as text, size},
    row,
    settle::Batch,
};
use crate::{
    dead::{
        Actor, DeadDetails, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadState, Recovery,
        RecoveryAction, ReplayAs, Touched,
    },
    event::{Lane, Seq},
    settlement::DeadReason,
    store::{PageLimit, StoreError},
};

/// Where the letter begins in `dead/show.sql`; its failures stand behind it.
const LETTER: usize = 23;
const FAILURES: usize = LETTER + 14;

#[async_trait]
impl DeadLetters for SqliteStore {
    async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError> {
        let at = &*self.connections;
        let rows = filtered(&at.statements.dead_groups, filter)
            .fetch_all(at.reader())
            .await;
        read(at, rows, |row| {
            Ok(DeadGroup {
                fingerprint: row.try_get(0)?,
                reason: DeadReason::from_stored(row.try_get(1)?),
                sink: row.try_get(2)?,
                error: row.try_get(3)?,
                count: count(row, 4)?,
                keys: count(row, 5)?,
                topics: count(row, 6)?,
                first_died_at: time(row.try_get(7)?),
                last_died_at: time(row.try_get(8)?),
                told_at: row.try_get::<Option<i64>, _>(9)?.map(time),
            })
        })
    }

    async fn list(
        &self,
        filter: &DeadFilter,
        state: Option<DeadState>,
        before: Option<Seq>,
        count: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let at = &*self.connections;
        let rows = filtered(&at.statements.dead_list, filter)
            .bind(state.map(DeadState::as_str))
            .bind(before.unwrap_or(Seq::MAX))
            .bind(size(count))
            .fetch_all(at.reader())
            .await;
        read(at, rows, |row| letter(row, 0))
    }

    async fn show(&self, id: Uuid) -> Result<Option<DeadDetails>, StoreError> {
        let at = &*self.connections;
        let limit = PageLimit {
            events: 1,
            bytes: usize::MAX,
            payload_bytes_max: Limits::default().payload_bytes_max,
        };
        let rows = sqlx::query(at.statements.dead_show.clone())
            .bind(id.to_string())
            .bind(size(limit.payload_bytes_max))
            .fetch_all(at.reader())
            .await;
        let details = read(at, rows, |row| {
            let event = match row.try_get::<Option<Seq>, _>(0)? {
                Some(_) => row::event(row, limit)?.ok().map(|stored| stored.event),
                None => None,
            };
            Ok(DeadDetails {
                letter: letter(row, LETTER)?,
                failures: serde_json::from_str(row.try_get(FAILURES)?).unwrap_or_default(),
                recoveries: Vec::new(),
                event,
            })
        })?;
        let Some(mut details) = details.into_iter().next() else {
            return Ok(None);
        };
        let rows = sqlx::query(at.statements.dead_recoveries.clone())
            .bind(details.letter.seq)
            .fetch_all(at.reader())
            .await;
        details.recoveries = read(at, rows, recovery)?;
        Ok(Some(details))
    }

    async fn touched(&self, filter: &DeadFilter) -> Result<Touched, StoreError> {
        let at = &*self.connections;
        let rows = filtered(&at.statements.dead_touched, filter)
            .fetch_all(at.reader())
            .await;
        let mut touched = Touched::default();
        read(at, rows, |row| {
            (touched.count, touched.keys) = (count(row, 0)?, count(row, 1)?);
            if row.try_get::<Option<&[u8]>, _>(2)?.is_some() {
                touched.topics.push((shown(row, 2)?, count(row, 3)?));
            }
            Ok(())
        })?;
        Ok(touched)
    }

    async fn replay(
        &self,
        filter: &DeadFilter,
        limit: usize,
        send: ReplayAs,
        actor: &Actor,
    ) -> Result<usize, StoreError> {
        let at = &*self.connections;
        let sql = &at.statements;
        let mut action = Action::begin(at, actor).await?;
        let chosen = action.chosen(filter, limit).await?;
        if chosen.is_empty() {
            return Ok(0);
        }
        let seqs: Vec<Value> = chosen.iter().map(|(seq, ..)| json!(seq)).collect();
        let mut batch = action.batch();
        batch.plain(&sql.dead_replayed, &seqs).await?;
        match send {
            ReplayAs::Same => {
                batch.plain(&sql.dead_revive, &seqs).await?;
                batch.plain(&sql.dead_park, &seqs).await?;
                let keys: BTreeSet<(Lane, String)> =
                    chosen.into_iter().map(|(_, lane, key)| (lane, key)).collect();
                batch.release(&keys).await?;
                let told: Vec<Value> = seqs.iter().map(|seq| json!([seq, null])).collect();
                action.tell("replayed", &told).await?;
            }
            ReplayAs::New => {
                let copies = seqs.iter().map(|seq| json!([seq, Uuid::now_v7()]));
                let copies: Vec<Value> = copies.collect();
                batch.timed(&sql.dead_copy, &copies).await?;
                batch.unblock(&seqs).await?;
                action.tell("replayed", &copies).await?;
            }
        }
        at.commit(action.tx).await?;
        Ok(seqs.len())
    }

    async fn discard(&self, filter: &DeadFilter, limit: usize, actor: &Actor) -> Result<usize, StoreError> {
        let at = &*self.connections;
        let mut action = Action::begin(at, actor).await?;
        at.counted(1);
        let rows = filtered(&at.statements.dead_discard, filter)
            .bind(size(limit))
            .fetch_all(&mut *action.tx)
            .await;
        let seqs = read(at, rows, |row| Ok(json!(row.try_get::<Seq, _>(0)?)))?;
        action.batch().unblock(&seqs).await?;
        let told: Vec<Value> = seqs.iter().map(|seq| json!([seq, null])).collect();
        action.tell("discarded", &told).await?;
        at.commit(action.tx).await?;
        Ok(told.len())
    }

    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let at = &*self.connections;
        let mut tx = at.begin().await?;
        let now = now();
        at.counted(1);
        let rows = sqlx::query(at.statements.dead_expire.clone())
            .bind(now.saturating_sub(micros(age)))
            .bind(size(limit))
            .fetch_all(&mut *tx)
            .await;
        let gone = read(at, rows, |row| Ok(json!(row.try_get::<Seq, _>(0)?)))?;
        let mut batch = Batch { at, tx: &mut tx, now };
        batch.plain(&at.statements.dead_forget, &gone).await?;
        at.commit(tx).await?;
        Ok(gone.len())
    }
}

/// What a person does: a transaction that ends with who did it.
struct Action<'a> {
    at: &'a Connections,
    tx: Transaction<'static, Sqlite>,
    now: i64,
    actor: &'a Actor,
}

impl<'a> Action<'a> {
    async fn begin(at: &'a Connections, actor: &'a Actor) -> Result<Self, StoreError> {
        let tx = at.begin().await?;
        let now = now();
        Ok(Self { at, tx, now, actor })
    }

    fn batch(&mut self) -> Batch<'_> {
        Batch {
            at: self.at,
            tx: &mut self.tx,
            now: self.now,
        }
    }

    async fn chosen(
        &mut self,
        filter: &DeadFilter,
        limit: usize,
    ) -> Result<Vec<(Seq, Lane, String)>, StoreError> {
        self.at.counted(1);
        let rows = filtered(&self.at.statements.dead_choose, filter)
            .bind(size(limit))
            .fetch_all(&mut *self.tx)
            .await;
        // A key that is no text has no order to be replayed in, and its event can't be read: such a letter stays open.
        let chosen = read(self.at, rows, |row| {
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2).ok()))
        })?;
        let with_key = |(seq, lane, key): (_, _, Option<String>)| Some((seq, lane, key?));
        Ok(chosen.into_iter().filter_map(with_key).collect())
    }

    async fn tell(&mut self, action: &str, told: &[Value]) -> Result<(), StoreError> {
        let actor = self.actor;
        self.batch()
            .tell(told, action, &actor.by, actor.why.as_deref())
            .await
    }
}

/// With the filter bound, as `dead/filter.sql` takes it.
pub(super) fn filtered<'q>(sql: &SqlStr, filter: &'q DeadFilter) -> Query<'q, Sqlite, SqliteArguments> {
    let (topic, prefix) = filter.topic_and_prefix();
    sqlx::query(sql.clone())
        .bind((!filter.ids.is_empty()).then(|| text(&filter.ids)))
        .bind(&filter.fingerprint)
        .bind(topic)
        .bind(prefix)
        .bind(&filter.event_type)
        .bind(&filter.key)
        .bind(filter.reason.map(DeadReason::as_str))
        .bind(filter.since.map(Timestamp::as_microsecond))
}

pub(super) fn read<T>(
    at: &Connections,
    rows: Result<Vec<SqliteRow>, sqlx::Error>,
    read: impl FnMut(&SqliteRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, StoreError> {
    let read: Result<Vec<T>, sqlx::Error> = rows.and_then(|rows| rows.iter().map(read).collect());
    read.map_err(|e| at.error(e))
}

/// From the fourteen columns of `dead/list.sql`.
fn letter(row: &SqliteRow, first: usize) -> Result<DeadLetter, sqlx::Error> {
    Ok(DeadLetter {
        seq: row.try_get(first)?,
        id: row.try_get::<&str, _>(first + 1)?.parse().unwrap_or_default(),
        topic: shown(row, first + 2)?,
        key: shown(row, first + 3)?,
        event_type: shown(row, first + 4)?,
        reason: DeadReason::from_stored(row.try_get(first + 5)?),
        error: row.try_get(first + 6)?,
        attempts: row.try_get(first + 7)?,
        sink: row.try_get(first + 8)?,
        relay: row.try_get(first + 9)?,
        fingerprint: row.try_get(first + 10)?,
        died_at: time(row.try_get(first + 11)?),
        state: DeadState::from_stored(row.try_get(first + 12)?),
        blocks_key: row.try_get(first + 13)?,
    })
}

/// A text from the event, which may be the very thing that can't be read.
fn shown(row: &SqliteRow, column: usize) -> Result<String, sqlx::Error> {
    let bytes = row.try_get::<&[u8], _>(column)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn recovery(row: &SqliteRow) -> Result<Recovery, sqlx::Error> {
    Ok(Recovery {
        action: RecoveryAction::from_stored(row.try_get(0)?),
        at: time(row.try_get(1)?),
        by: row.try_get(2)?,
        why: row.try_get(3)?,
        new_id: row.try_get::<Option<&str>, _>(4)?.and_then(|id| id.parse().ok()),
    })
}

pub(super) fn count(row: &SqliteRow, column: usize) -> Result<u64, sqlx::Error> {
    row.try_get::<i64, _>(column).map(i64::unsigned_abs)
}

//! Dead letters: looking at them, and what people do about them.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Limits, table::Tables};
use serde::Deserialize;
use sqlx::{
    Postgres, Row, Transaction,
    postgres::{PgArguments, PgRow},
};
use uuid::Uuid;

use super::{
    PostgresStore,
    connection::{Sql, arguments, statement},
    microseconds, row,
};
use crate::{
    dead::{
        Actor, DeadDetails, DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadState, Recovery,
        RecoveryAction, ReplayAs, Touched,
    },
    event::Seq,
    settlement::DeadReason,
    store::StoreError,
};

/// Where the columns of the event begin in `dead/show.sql`.
const EVENT_COLUMNS: usize = 16;

#[async_trait]
impl DeadLetters for PostgresStore {
    async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError> {
        let sql = filtered(
            self.connection.tables(),
            filter,
            include_str!("sql/dead/groups.sql"),
        );
        let rows = self.connection.rows(&sql, arguments(filter)?).await?;
        self.read(&rows, |row| {
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
        let sql = filtered(
            self.connection.tables(),
            filter,
            include_str!("sql/dead/list.sql"),
        );
        let state = state.map(DeadState::as_str);
        let arguments = arguments!(in arguments(filter)?; state, before, count as i64)?;
        let rows = self.connection.rows(&sql, arguments).await?;
        self.read(&rows, letter)
    }

    async fn show(&self, id: Uuid) -> Result<Option<DeadDetails>, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/dead/show.sql"));
        let limits = Limits::default();
        let arguments = arguments!(id, limits.payload_bytes_max as i32)?;
        let rows = self.connection.rows(&sql, arguments).await?;
        let details = self.read(&rows, |row| {
            Ok(DeadDetails {
                letter: letter(row)?,
                failures: serde_json::from_str(row.try_get(14)?).unwrap_or_default(),
                recoveries: recoveries(row.try_get(15)?),
                event: row::event(row, EVENT_COLUMNS, &limits)
                    .ok()
                    .map(|stored| stored.event),
            })
        })?;
        Ok(details.into_iter().next())
    }

    async fn touched(&self, filter: &DeadFilter) -> Result<Touched, StoreError> {
        let sql = filtered(
            self.connection.tables(),
            filter,
            include_str!("sql/dead/touched.sql"),
        );
        let rows = self.connection.rows(&sql, arguments(filter)?).await?;
        let mut touched = Touched::default();
        self.read(&rows, |row| {
            (touched.count, touched.keys) = (count(row, 0)?, count(row, 1)?);
            if let Some(topic) = row.try_get(2)? {
                touched.topics.push((topic, count(row, 3)?));
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
        let mut action = Action::begin(self, filter, limit).await?;
        // An event that is gone can't be sent.
        action.chosen.retain(|chosen| chosen.lane.is_some());
        match send {
            ReplayAs::New => {
                action.run(include_str!("sql/dead/replay_new.sql"), actor).await?;
                action.unblock().await?;
            }
            ReplayAs::Same => action.run(include_str!("sql/dead/replay.sql"), actor).await?,
        }
        action.finish().await
    }

    async fn discard(&self, filter: &DeadFilter, limit: usize, actor: &Actor) -> Result<usize, StoreError> {
        let mut action = Action::begin(self, filter, limit).await?;
        action.run(include_str!("sql/dead/discard.sql"), actor).await?;
        action.unblock().await?;
        action.finish().await
    }

    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/dead/expire.sql"));
        let arguments = arguments!(microseconds(age), limit as i64)?;
        let row = self.connection.row(&sql, arguments).await?;
        self.counted(&row)
    }
}

struct Chosen {
    seq: Seq,
    /// `None`: the event is gone.
    lane: Option<i16>,
    key: String,
}

/// Something a person does about some letters, in one transaction that keeps settlements of their lanes out: both change
/// which event of a key goes first.
struct Action<'a> {
    store: &'a PostgresStore,
    tx: Transaction<'static, Postgres>,
    chosen: Vec<Chosen>,
    /// Whose order it has changed.
    keys: BTreeSet<(i16, String)>,
}

impl<'a> Action<'a> {
    async fn begin(store: &'a PostgresStore, filter: &DeadFilter, limit: usize) -> Result<Self, StoreError> {
        let (connection, tables) = (&store.connection, store.connection.tables());
        let mut tx = connection.begin().await?;
        let choose = filtered(tables, filter, include_str!("sql/dead/choose.sql"));
        let arguments = arguments!(in arguments(filter)?; limit as i64)?;
        let rows = connection.rows_in(&mut tx, &choose, arguments).await?;
        let chosen = store.read(&rows, |row| {
            Ok(Chosen {
                seq: row.try_get(0)?,
                lane: row.try_get(1)?,
                key: row.try_get(2)?,
            })
        })?;
        let lanes: Vec<i16> = chosen.iter().filter_map(|chosen| chosen.lane).collect();
        if !lanes.is_empty() {
            let lock = statement(tables, include_str!("sql/dead/lanes.sql"));
            connection.rows_in(&mut tx, &lock, arguments!(lanes)?).await?;
        }
        let of = |chosen: &Chosen| Some((chosen.lane?, chosen.key.clone()));
        let keys = chosen.iter().filter_map(of).collect();
        Ok(Self {
            store,
            tx,
            chosen,
            keys,
        })
    }

    fn seqs(&self) -> Vec<Seq> {
        self.chosen.iter().map(|chosen| chosen.seq).collect()
    }

    async fn run(&mut self, sql: &str, actor: &Actor) -> Result<(), StoreError> {
        let arguments = arguments!(self.seqs(), &actor.by, &actor.why)?;
        self.written(sql, arguments).await?;
        Ok(())
    }

    /// Keys that waited for these letters go on.
    async fn unblock(&mut self) -> Result<(), StoreError> {
        let arguments = arguments!(self.seqs())?;
        let rows = self
            .written(include_str!("sql/dead/unblock.sql"), arguments)
            .await?;
        let keys = self
            .store
            .read(&rows, |row| Ok((row.try_get(0)?, row.try_get(1)?)))?;
        self.keys.extend(keys);
        Ok(())
    }

    async fn written(&mut self, sql: &str, arguments: PgArguments) -> Result<Vec<PgRow>, StoreError> {
        let connection = &self.store.connection;
        let sql = statement(connection.tables(), sql);
        connection.rows_in(&mut self.tx, &sql, arguments).await
    }

    /// Settles which event of each key goes first, and tells how many letters it was.
    async fn finish(mut self) -> Result<usize, StoreError> {
        let connection = &self.store.connection;
        self.store
            .settle
            .next(connection, &mut self.tx, self.keys)
            .await?;
        connection.commit(self.tx).await?;
        Ok(self.chosen.len())
    }
}

impl PostgresStore {
    pub(super) fn read<T>(
        &self,
        rows: &[PgRow],
        read: impl FnMut(&PgRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, StoreError> {
        let read: Result<Vec<T>, sqlx::Error> = rows.iter().map(read).collect();
        read.map_err(|e| self.connection.explain(e))
    }

    pub(super) fn counted(&self, row: &PgRow) -> Result<usize, StoreError> {
        let n = count(row, 0).map_err(|e| self.connection.explain(e))?;
        Ok(usize::try_from(n).unwrap_or(usize::MAX))
    }
}

/// Ids are looked up by their index; the rest is compared letter by letter.
pub(super) fn filtered(tables: &Tables, filter: &DeadFilter, sql: &str) -> Sql {
    let ids = match filter.ids.is_empty() {
        true => "$1::uuid[] is null",
        false => "d.id = any($1::uuid[])",
    };
    let filter = include_str!("sql/dead/filter.sql")
        .trim_end()
        .replace("{ids}", ids);
    statement(tables, &sql.replace("{filter}", &filter))
}

/// As `dead/filter.sql` takes them.
pub(super) fn arguments(filter: &DeadFilter) -> Result<PgArguments, StoreError> {
    let (topic, prefix) = filter.topic_and_prefix();
    let ids = (!filter.ids.is_empty()).then_some(&filter.ids);
    let reason = filter.reason.map(DeadReason::as_str);
    let since = filter.since.map(Timestamp::as_microsecond);
    arguments!(
        ids,
        &filter.fingerprint,
        topic,
        prefix,
        &filter.event_type,
        &filter.key,
        reason,
        since
    )
}

/// From the fourteen columns that `dead/list.sql` and `dead/show.sql` begin with.
fn letter(row: &PgRow) -> Result<DeadLetter, sqlx::Error> {
    Ok(DeadLetter {
        seq: row.try_get(0)?,
        id: row.try_get(1)?,
        topic: row.try_get(2)?,
        key: row.try_get(3)?,
        event_type: row.try_get(4)?,
        reason: DeadReason::from_stored(row.try_get(5)?),
        error: row.try_get(6)?,
        attempts: u32::try_from(row.try_get::<i32, _>(7)?).unwrap_or_default(),
        sink: row.try_get(8)?,
        relay: row.try_get(9)?,
        fingerprint: row.try_get(10)?,
        died_at: time(row.try_get(11)?),
        state: DeadState::from_stored(row.try_get(12)?),
        blocks_key: row.try_get(13)?,
    })
}

#[derive(Deserialize)]
struct StoredRecovery {
    action: String,
    at: Timestamp,
    by: String,
    why: Option<String>,
    new_id: Option<Uuid>,
}

fn recoveries(json: &str) -> Vec<Recovery> {
    let stored: Vec<StoredRecovery> = serde_json::from_str(json).unwrap_or_default();
    stored
        .into_iter()
        .map(|stored| Recovery {
            action: RecoveryAction::from_stored(&stored.action),
            at: stored.at,
            by: stored.by,
            why: stored.why,
            new_id: stored.new_id,
        })
        .collect()
}

pub(super) fn count(row: &PgRow, column: usize) -> Result<u64, sqlx::Error> {
    row.try_get::<i64, _>(column).map(i64::unsigned_abs)
}

pub(super) fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

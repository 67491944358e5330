//! Dead letters, for both SQL databases: queries and actions.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Event, EventId};

use super::{Argument, Sql, SqlDatabase, SqlRow, SqlStore};
use crate::{
    dead::{
        Actor, CAUSES_MAX, CauseResult, DeadDetails, DeadFilter, DeadGroup, DeadLetter, DeadLetters,
        DeadState, OpenCause, Recovery, RecoveryAction, ReplayAs, Touched,
    },
    event::{Lane, Seq},
    settlement::DeadReason,
    store::StoreError,
};

const FAILURES: usize = 14;

/// The parts that are specific to each SQL database.
#[async_trait]
pub(in crate::store) trait DeadLetterStore: SqlStore {
    /// The event of a letter. `None` if it no longer exists or can't be read.
    async fn event_of(&self, seq: Seq, id: &EventId) -> Result<Option<Event>, StoreError>;

    /// Blocks settlements of these lanes until the transaction ends: both change which event of a key is first.
    async fn lock_lanes(
        &self,
        tx: &mut <Self::Database as SqlDatabase>::Tx,
        lanes: &[Lane],
    ) -> Result<(), StoreError>;

    /// Copies dead events under new ids, in the order of their seq, and records who did so.
    async fn copy_events(
        &self,
        tx: &mut <Self::Database as SqlDatabase>::Tx,
        seqs: &[Seq],
        actor: &Actor,
    ) -> Result<(), StoreError>;

    /// Makes only the first event of each key due.
    async fn order_keys(
        &self,
        tx: &mut <Self::Database as SqlDatabase>::Tx,
        keys: BTreeSet<(Lane, String)>,
    ) -> Result<(), StoreError>;
}

#[async_trait]
impl<S: DeadLetterStore> DeadLetters for S {
    async fn groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, StoreError> {
        let database = self.database();
        let sql = filtered(database, filter, include_str!("dead/groups.sql"));
        let rows = database.browse(sql, filter_arguments(filter)).await?;
        database.read_rows(&rows, |row| {
            Ok(DeadGroup {
                fingerprint: row.text(0)?,
                reason: DeadReason::from_stored(&row.text(1)?),
                sink: row.optional_text(2)?,
                error: row.text(3)?,
                count: row.count(4)?,
                keys: row.count(5)?,
                topics: row.count(6)?,
                first_died_at: row.time(7)?,
                last_died_at: row.time(8)?,
                told_at: None,
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
        let database = self.database();
        let sql = filtered(database, filter, include_str!("dead/list.sql"));
        let mut arguments = filter_arguments(filter);
        arguments.extend(arguments!(state.map(DeadState::as_str), before, count));
        let rows = database.browse(sql, arguments).await?;
        database.read_rows(&rows, letter)
    }

    async fn show(&self, id: &EventId) -> Result<Option<DeadDetails>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("dead/show.sql"));
        let rows = database.browse(sql, arguments!(id)).await?;
        let details = database.read_rows(&rows, |row| {
            Ok(DeadDetails {
                letter: letter(row)?,
                failures: serde_json::from_str(&row.text(FAILURES)?).unwrap_or_default(),
                recoveries: Vec::new(),
                event: None,
            })
        })?;
        let Some(mut details) = details.into_iter().next() else {
            return Ok(None);
        };
        let sql = statement(database, include_str!("dead/recoveries.sql"));
        let rows = database.browse(sql, arguments!(details.letter.seq)).await?;
        details.recoveries = database.read_rows(&rows, recovery)?;
        details.event = self.event_of(details.letter.seq, id).await?;
        Ok(Some(details))
    }

    async fn touched(&self, filter: &DeadFilter) -> Result<Touched, StoreError> {
        let database = self.database();
        let sql = filtered(database, filter, include_str!("dead/touched.sql"));
        let rows = database.browse(sql, filter_arguments(filter)).await?;
        let mut touched = Touched::default();
        database.read_rows(&rows, |row| {
            (touched.count, touched.keys) = (row.count(0)?, row.count(1)?);
            if let Some(topic) = row.optional_text(2)? {
                touched.topics.push((topic, row.count(3)?));
            }
            Ok(())
        })?;
        Ok(touched)
    }

    async fn causes(&self) -> Result<Vec<OpenCause>, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("dead/causes.sql"));
        let rows = database.query(sql, arguments!(CAUSES_MAX)).await?;
        database.read_rows(&rows, |row| {
            Ok(OpenCause {
                fingerprint: row.text(0)?,
                count: row.count(1)?,
                last_died_at: row.time(2)?,
            })
        })
    }

    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<CauseResult, StoreError> {
        let database = self.database();
        let sql = statement(database, include_str!("dead/outcome.sql"));
        let rows = database.query(sql, arguments!(fingerprint, since)).await?;
        let outcome = database.read_rows(&rows, |row| {
            Ok(CauseResult {
                replayed: row.count(0)?,
                discarded: row.count(1)?,
                waiting: row.count(2)?,
            })
        })?;
        Ok(outcome.into_iter().next().unwrap_or_default())
    }

    async fn replayable(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        let database = self.database();
        let sql = filtered(database, filter, include_str!("dead/replayable.sql"));
        let mut arguments = filter_arguments(filter);
        arguments.extend(arguments!(min_age, times_max, limit));
        let rows = database.query(sql, arguments).await?;
        database.read_rows(&rows, |row| row.id(0))
    }

    async fn replay(
        &self,
        filter: &DeadFilter,
        limit: usize,
        send: ReplayAs,
        actor: &Actor,
    ) -> Result<usize, StoreError> {
        let mut action = Action::begin(self, filter, limit).await?;
        // An event that no longer exists can't be sent. An event whose key can't be read can't be ordered: its
        // letter stays open.
        action
            .chosen
            .retain(|chosen| chosen.lane.is_some() && chosen.key.is_some());
        match send {
            ReplayAs::New => {
                action.mark(DeadState::Replayed).await?;
                let seqs = action.seqs();
                self.copy_events(&mut action.tx, &seqs, actor).await?;
                action.unblock().await?;
            }
            ReplayAs::Same => {
                action.mark(DeadState::Replayed).await?;
                action.run(include_str!("dead/revive.sql")).await?;
                action.run(include_str!("dead/park.sql")).await?;
                action.write_down("replayed", actor).await?;
            }
        }
        action.finish().await
    }

    async fn discard(&self, filter: &DeadFilter, limit: usize, actor: &Actor) -> Result<usize, StoreError> {
        let mut action = Action::begin(self, filter, limit).await?;
        action.mark(DeadState::Discarded).await?;
        action.unblock().await?;
        action.write_down("discarded", actor).await?;
        action.finish().await
    }

    async fn expire(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        let database = self.database();
        let mut tx = database.begin_tx().await?;
        let sql = statement(database, include_str!("dead/expired.sql"));
        let rows = database.execute_in(&mut tx, sql, arguments!(age, limit)).await?;
        let seqs = database.read_rows(&rows, |row| row.integer(0))?;
        for sql in [include_str!("dead/forget.sql"), include_str!("dead/drop.sql")] {
            let sql = statement(database, sql);
            database.execute_in(&mut tx, sql, arguments!(&*seqs)).await?;
        }
        database.commit_tx(tx).await?;
        Ok(seqs.len())
    }
}

struct Chosen {
    seq: Seq,
    /// `None`: the event no longer exists.
    lane: Option<Lane>,
    /// `None`: it is not UTF-8.
    key: Option<String>,
}

/// An action of a person on some letters, in one transaction.
struct Action<'a, S: SqlStore> {
    store: &'a S,
    tx: <S::Database as SqlDatabase>::Tx,
    chosen: Vec<Chosen>,
    /// The keys whose order it may have changed.
    keys: BTreeSet<(Lane, String)>,
}

impl<'a, S: DeadLetterStore> Action<'a, S> {
    async fn begin(store: &'a S, filter: &DeadFilter, limit: usize) -> Result<Self, StoreError> {
        let database = store.database();
        let mut tx = database.begin_tx().await?;
        let choose = filtered(database, filter, include_str!("dead/choose.sql"));
        let mut arguments = filter_arguments(filter);
        arguments.extend(arguments!(limit));
        let rows = database.execute_in(&mut tx, choose, arguments).await?;
        let chosen = database.read_rows(&rows, |row| {
            let lane = row.optional_integer(1)?;
            Ok(Chosen {
                seq: row.integer(0)?,
                lane: lane.and_then(|lane| Lane::try_from(lane).ok()),
                key: row.exact_text(2)?,
            })
        })?;
        let lanes: Vec<Lane> = chosen.iter().filter_map(|chosen| chosen.lane).collect();
        if !lanes.is_empty() {
            store.lock_lanes(&mut tx, &lanes).await?;
        }
        let of = |chosen: &Chosen| Some((chosen.lane?, chosen.key.clone()?));
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

    async fn mark(&mut self, state: DeadState) -> Result<(), StoreError> {
        let arguments = arguments!(&*self.seqs(), state.as_str());
        self.execute(include_str!("dead/mark.sql"), arguments)
            .await
            .map(drop)
    }

    /// A statement that takes the seqs.
    async fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let arguments = arguments!(&*self.seqs());
        self.execute(sql, arguments).await.map(drop)
    }

    async fn write_down(&mut self, action: &str, actor: &Actor) -> Result<(), StoreError> {
        let arguments = arguments!(&*self.seqs(), action, &actor.by, &actor.why);
        self.execute(include_str!("dead/recover.sql"), arguments)
            .await
            .map(drop)
    }

    /// Unblocks the keys that waited for these letters.
    async fn unblock(&mut self) -> Result<(), StoreError> {
        let arguments = arguments!(&*self.seqs());
        let rows = self.execute(include_str!("dead/unblock.sql"), arguments).await?;
        let keys = self.store.database().read_rows(&rows, |row| {
            let lane = Lane::try_from(row.integer(0)?).unwrap_or_default();
            Ok(row.exact_text(1)?.map(|key| (lane, key)))
        })?;
        self.keys.extend(keys.into_iter().flatten());
        Ok(())
    }

    async fn execute(
        &mut self,
        sql: &str,
        arguments: Vec<Argument>,
    ) -> Result<Vec<<S::Database as SqlDatabase>::Row>, StoreError> {
        let database = self.store.database();
        let sql = statement(database, sql);
        database.execute_in(&mut self.tx, sql, arguments).await
    }

    /// Orders the keys and commits. Returns the number of letters.
    async fn finish(mut self) -> Result<usize, StoreError> {
        self.store.order_keys(&mut self.tx, self.keys).await?;
        self.store.database().commit_tx(self.tx).await?;
        Ok(self.chosen.len())
    }
}

fn statement(database: &impl SqlDatabase, sql: &str) -> Sql {
    database.statement(&with_parts(sql, false))
}

fn filtered(database: &impl SqlDatabase, filter: &DeadFilter, sql: &str) -> Sql {
    database.statement(&with_parts(sql, !filter.ids.is_empty()))
}

/// Fills in the columns of a letter and the filter. An index finds ids; the other conditions are checked for each
/// letter.
pub(super) fn with_parts(sql: &str, has_ids: bool) -> String {
    let ids = if has_ids { "{in d.id $1}" } else { "$1 is null" };
    let filter = include_str!("dead/filter.sql").trim_end();
    sql.replace("{letter}", include_str!("dead/letter.sql").trim_end())
        .replace("{filter}", &filter.replace("{ids}", ids))
}

/// The parameters of `dead/filter.sql`.
fn filter_arguments(filter: &DeadFilter) -> Vec<Argument> {
    let (topic, prefix) = filter.topic_and_prefix();
    let mut arguments = vec![Argument::Texts(
        (!filter.ids.is_empty()).then(|| filter.ids.iter().map(EventId::to_string).collect()),
    )];
    arguments.extend(arguments!(
        &filter.fingerprint,
        topic,
        prefix,
        &filter.event_type,
        &filter.key,
        filter.reason.map(DeadReason::as_str),
        filter.since
    ));
    arguments
}

/// From the columns of `dead/letter.sql`.
fn letter(row: &impl SqlRow) -> Result<DeadLetter, sqlx::Error> {
    Ok(DeadLetter {
        seq: row.integer(0)?,
        id: row.id(1)?,
        topic: row.text(2)?,
        key: row.text(3)?,
        event_type: row.text(4)?,
        reason: DeadReason::from_stored(&row.text(5)?),
        error: row.text(6)?,
        attempts: u32::try_from(row.integer(7)?).unwrap_or_default(),
        sink: row.optional_text(8)?,
        relay: row.text(9)?,
        fingerprint: row.text(10)?,
        died_at: row.time(11)?,
        state: DeadState::from_stored(&row.text(12)?),
        blocks_key: row.flag(13)?,
    })
}

fn recovery(row: &impl SqlRow) -> Result<Recovery, sqlx::Error> {
    Ok(Recovery {
        action: RecoveryAction::from_stored(&row.text(0)?),
        at: row.time(1)?,
        by: row.text(2)?,
        why: row.optional_text(3)?,
        new_id: row.optional_id(4)?,
    })
}

//! Finds the seq up to which everything is decided: committed, or never to be committed.
//!
//! An event's transaction was open when it got its seq. So if at some moment no transaction is open and no insert
//! is running, every event with an earlier seq is committed or rolled back. The server counts open transactions
//! exactly (`serverStatus`), and lists single inserts while they run (`$currentOp`). A list of the transactions
//! would say more, but it can miss one that begins a command while the list is made.
//!
//! If transactions overlap all the time, or the user may not ask, age decides: the server ends a transaction that
//! is older than `transactionLifetimeLimitSeconds`. The mark then stays some 100 seconds behind. That only means
//! that more of the index `pending` is read after a takeover.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use tokio::time::Instant;

use super::{
    connection::{Collections, Connection},
    document::seq,
};
use crate::{event::Seq, store::StoreError, store::StoreErrorKind};

/// How often the server is asked while something is undecided.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The server's default, used if it does not report how old a transaction may get.
const LIFETIME_SECONDS: i64 = 60;
/// How often it is read again, because it may change while the server runs. This is sooner than a transaction can
/// exceed the old limit because of a raised one.
const LIFETIME_AGAIN: Duration = Duration::from_secs(30);
/// For small differences between clocks, and for an insert that had to wait.
const MARGIN_SECONDS: i64 = 10;

#[derive(Default)]
pub(super) struct Deciding {
    asked_at: Option<Instant>,
    /// The server has refused to answer this user.
    refused: bool,
    /// Everything up to the first seq is decided in every snapshot from the second one on.
    proven: Option<(Seq, Seq)>,
    /// How old a transaction may get, in seconds, and when the server was asked.
    lifetime: Option<(i64, Instant)>,
}

impl Deciding {
    /// The decided seq in the snapshot `seen`. `position`: the last event returned; events above it do not matter
    /// yet.
    pub(super) async fn decided(
        &mut self,
        connection: &Connection,
        at: &Collections,
        seen: Seq,
        position: Seq,
    ) -> Result<Seq, StoreError> {
        let by_age = seen - (self.lifetime(connection, at).await? << 32);
        let proven = match self.proven {
            Some((decided, from)) if from <= seen => decided,
            _ => 0,
        };
        let decided = by_age.max(proven);
        let due = self.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        let waiting = self.proven.is_some_and(|(_, from)| from > seen);
        if decided < position && due && !waiting && !self.refused {
            self.ask(connection, at, seen).await?;
        }
        Ok(decided)
    }

    /// `seen` is a time that a majority knows, so every later primary assigns higher seqs.
    async fn ask(&mut self, connection: &Connection, at: &Collections, seen: Seq) -> Result<(), StoreError> {
        self.asked_at = Some(Instant::now());
        let answer = match quiet(connection, at).await {
            Ok(answer) => answer,
            Err(error) if error.kind == StoreErrorKind::Misconfigured => {
                tracing::debug!(
                    "this user may not ask which transactions are open: the age of events decides instead"
                );
                self.refused = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if let Some(quiet_at) = answer {
            // Everything committed by then is in the snapshots from then on.
            self.proven = Some((seen, quiet_at));
        }
        Ok(())
    }

    async fn lifetime(&mut self, connection: &Connection, at: &Collections) -> Result<i64, StoreError> {
        if let Some((lifetime, _)) = self.lifetime.filter(|(_, at)| at.elapsed() < LIFETIME_AGAIN) {
            return Ok(lifetime);
        }
        const NAME: &str = "transactionLifetimeLimitSeconds";
        let admin = at.client.database("admin");
        let asked = connection
            .run(admin.run_command(doc! { "getParameter": 1, NAME: 1 }))
            .await;
        let limit = match asked {
            Ok(answer) => answer.get(NAME).and_then(whole).unwrap_or(LIFETIME_SECONDS),
            Err(error) if error.kind == StoreErrorKind::Away => return Err(error),
            Err(_) => LIFETIME_SECONDS,
        };
        // The server looks for such transactions every half of the limit, at least once a minute.
        let lifetime = limit + (limit / 2).clamp(1, 60) + MARGIN_SECONDS;
        self.lifetime = Some((lifetime, Instant::now()));
        Ok(lifetime)
    }
}

/// The server's time, if no transaction is open on it and no insert into the outbox is running.
async fn quiet(connection: &Connection, at: &Collections) -> Result<Option<Seq>, StoreError> {
    let admin = at.client.database("admin");
    let status = connection.run(admin.run_command(server_status())).await?;
    let open = status
        .get_document("transactions")
        .ok()
        .and_then(|transactions| transactions.get("currentOpen"))
        .and_then(whole);
    if open != Some(0) {
        return Ok(None);
    }
    let inserts = doc! {
        "aggregate": 1,
        "pipeline": [
            { "$currentOp": { "allUsers": true } },
            { "$match": { "active": true, "op": "insert", "ns": at.events.namespace().to_string() } },
            { "$limit": 1 },
        ],
        "cursor": {},
    };
    let inserts = connection.run(admin.run_command(inserts)).await?;
    let batch = inserts
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"));
    match (batch, inserts.get_timestamp("operationTime")) {
        (Ok(batch), Ok(time)) if batch.is_empty() => Ok(Some(seq(time))),
        _ => Ok(None),
    }
}

/// Everything except the transactions is left out: the whole answer costs the server milliseconds.
fn server_status() -> Document {
    let mut command = doc! { "serverStatus": 1, "transactions": 1 };
    for section in [
        "asserts",
        "connections",
        "electionMetrics",
        "extra_info",
        "flowControl",
        "globalLock",
        "indexBulkBuilder",
        "indexBuilds",
        "indexStats",
        "internalTransactions",
        "latchAnalysis",
        "locks",
        "logicalSessionRecordCache",
        "mem",
        "metrics",
        "mirroredReads",
        "network",
        "opLatencies",
        "opReadConcernCounters",
        "opcounters",
        "opcountersRepl",
        "oplogTruncation",
        "readConcernCounters",
        "readPreferenceCounters",
        "queryAnalyzers",
        "repl",
        "scramCache",
        "security",
        "sharding",
        "shardSplits",
        "storageEngine",
        "tcmalloc",
        "tenantMigrations",
        "trafficRecording",
        "transportSecurity",
        "twoPhaseCommitCoordinator",
        "watchdog",
        "wiredTiger",
        "writeBacksQueued",
        "batchedDeletes",
        "Instance Info",
        "featureCompatibilityVersion",
        "changeStreamPreImages",
        "collectionCatalog",
        "defaultRWConcern",
        "errorsByCode",
        "hedgingMetrics",
        "catalogStats",
        "freeMonitoring",
        "activeOps",
        "tcmallocReleaseRate",
        "aggStageCounters",
        "operatorCounters",
        "queryStats",
        "shardingStatistics",
        "ttl",
        "profiler",
        "resourceConsumption",
        "initialSync",
        "planCache",
    ] {
        command.insert(section, 0);
    }
    command
}

fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(value) => Some((*value).into()),
        Bson::Int64(value) => Some(*value),
        Bson::Double(value) => Some(*value as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::document::timestamp, *};

    #[test]
    fn a_lifetime_is_counted_in_seconds_of_the_clock() {
        let now = seq(mongodb::bson::Timestamp {
            time: 1_700_000_100,
            increment: 5,
        });
        assert_eq!(timestamp(now - (100 << 32)).time, 1_700_000_000);
    }
}

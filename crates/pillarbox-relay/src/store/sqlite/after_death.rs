//! Applies the routes' `after_death` to the key of an event that died.

use serde_json::{Value, json};

use super::{
    discover::json as text,
    settle::{Batch, failure},
};
use crate::{
    dead::{SUPERSEDED, superseded_fingerprint},
    event::Seq,
    route::AfterDeath,
    settlement::{Dead, DeadReason, FailedTry},
    store::StoreError,
};

impl Batch<'_> {
    /// Applies `after_death` to the events behind dead ones.
    pub(super) async fn after_deaths(&mut self, dead: &[Dead]) -> Result<(), StoreError> {
        let with = |after: AfterDeath| -> Vec<Value> {
            let dead = dead.iter().filter(|dead| dead.after == after);
            dead.map(|dead| json!(dead.seq)).collect()
        };
        let sql = &self.at.statements;
        self.plain(&sql.settle_keep_dead, &with(AfterDeath::Block))
            .await?;
        let latest = with(AfterDeath::Latest);
        match dead.first() {
            Some(first) if !latest.is_empty() => self.supersede(&latest, &first.failure).await,
            _ => Ok(()),
        }
    }

    /// Keeps only the newest of the events that wait behind these dead ones and have their topic. `death` gives
    /// the relay.
    async fn supersede(&mut self, dead: &[Value], death: &FailedTry) -> Result<(), StoreError> {
        let sql = &self.at.statements;
        self.at.counted(1);
        let older: Vec<(Seq, u32, String)> = sqlx::query_as(sql.settle_superseded.clone())
            .bind(text(dead))
            .fetch_all(&mut **self.tx)
            .await
            .map_err(|e| self.at.error(e))?;
        if older.is_empty() {
            return Ok(());
        }
        let (fingerprint, reason) = (superseded_fingerprint(), DeadReason::PermanentFailure.as_str());
        let rows = older.iter().map(|(seq, attempts, newest)| {
            let why = FailedTry {
                error: format!("{SUPERSEDED} \"{newest}\""),
                sink: None,
                relay: death.relay.clone(),
            };
            json!({
                "seq": seq, "attempts": attempts, "reason": reason, "failure": failure(&why, self.now),
                "tried": false, "fingerprint": fingerprint,
            })
        });
        let rows: Vec<Value> = rows.collect();
        let seqs: Vec<Value> = older.iter().map(|(seq, ..)| json!(seq)).collect();
        let told: Vec<Value> = seqs.iter().map(|seq| json!([seq, null])).collect();
        self.timed(&sql.settle_bury, &rows).await?;
        self.timed(&sql.settle_dead, &rows).await?;
        self.plain(&sql.settle_unparked, &seqs).await?;
        self.plain(&sql.settle_discarded, &seqs).await?;
        self.tell(
            &told,
            "discarded",
            &death.relay,
            Some("a newer event tells the latest state"),
        )
        .await
    }
}

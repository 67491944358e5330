//! Records the results of claimed events.

use std::collections::BTreeSet;

use async_trait::async_trait;
use mongodb::bson::{Document, doc};

use super::{
    super::{
        after_death::Letter,
        batch::{Batch, count},
        connection::Connection,
        document::{timestamp, timestamps},
        error::TxError,
        event_log::append::{Allowed, append_published},
        milliseconds,
        transaction::{Tx, Work},
    },
    give_back,
};
use crate::{
    event::{Lane, Seq},
    settlement::Settlement,
    store::{Settled, StoreError},
};

/// Every key is free afterwards: no event waits for another.
pub(super) async fn settle(connection: &Connection, settlement: &Settlement) -> Result<Settled, StoreError> {
    if settlement.is_empty() {
        return Ok(Settled { free: Vec::new() });
    }
    append_published(connection, &Allowed::Any, settlement).await?;
    if settlement.is_plain() {
        let at = connection.collections().await?;
        let update = at
            .events
            .update_many(open(settlement.published.iter().copied()), published());
        connection.run(update).await?;
        return Ok(Settled { free: Vec::new() });
    }
    connection.transaction(&Settling(settlement)).await?;
    Ok(Settled {
        free: keys(settlement),
    })
}

struct Settling<'a>(&'a Settlement);

#[async_trait]
impl Work for Settling<'_> {
    type Done = ();

    async fn run(&self, tx: &mut Tx<'_>) -> Result<(), TxError> {
        let settlement = self.0;
        let batch = Batch::read(tx, settlement).await?;
        let letters: Vec<Letter> = settlement
            .dead
            .iter()
            .filter(|dead| batch.is_open(dead.seq))
            .map(|dead| Letter::of(dead, batch.now))
            .collect();
        let mut updates: Vec<Document> = letters.iter().map(|letter| letter.death(batch.now)).collect();
        let parked = settlement.published_parked.iter().map(|parked| parked.seq);
        let delivered = settlement.published.iter().copied().chain(parked);
        updates.push(doc! { "q": open(delivered), "u": published(), "multi": true });
        let held = settlement.held.iter().map(|parked| parked.seq);
        let delayed = settlement.delayed.iter().map(|delayed| delayed.parked.seq);
        updates.push(doc! { "q": open(held.chain(delayed)), "u": give_back(), "multi": true });
        updates.extend(settlement.failed.iter().map(|failed| {
            let retry_at = doc! { "$add": ["$$NOW", milliseconds(failed.retry_in)] };
            let set = doc! {
                "status": "failed", "retry_count": count(failed.attempts), "retry_at": retry_at,
                "last_error": { "$literal": &failed.failure.error }, "last_error_at": "$$NOW",
                "first_attempt_at": { "$ifNull": ["$first_attempt_at", "$$NOW"] }, "last_attempt_at": "$$NOW",
            };
            let unlock = doc! { "$unset": ["locked_by", "locked_until"] };
            doc! { "q": open([failed.parked.seq]), "u": [{ "$set": set }, unlock] }
        }));
        let at = tx.at;
        tx.update_all(&at.events, updates).await?;
        batch.write_letters(tx, &letters).await?;
        batch.append_deaths(tx, &letters).await?;
        // Removes a replayed letter's row in the side table, which is not read here.
        tx.counted(1);
        let left: Vec<_> = batch.parked.keys().map(|seq| timestamp(*seq)).collect();
        at.parked
            .delete_many(doc! { "_id": { "$in": left } })
            .session(&mut tx.session)
            .await?;
        Ok(())
    }
}

/// Events whose result is final stay unchanged.
fn open(seqs: impl IntoIterator<Item = Seq>) -> Document {
    doc! { "seq": { "$in": timestamps(seqs) }, "status": { "$nin": ["published", "dead"] } }
}

fn published() -> Document {
    doc! {
        "$set": { "status": "published" },
        "$unset": { "locked_by": "", "locked_until": "", "retry_at": "" },
        "$currentDate": { "published_at": true, "last_attempt_at": true },
    }
}

fn keys(settlement: &Settlement) -> Vec<(Lane, String)> {
    let parked = settlement.published_parked.iter().chain(&settlement.held);
    let failed = settlement.failed.iter().map(|failed| &failed.parked);
    let dead = settlement
        .dead
        .iter()
        .filter_map(|dead| Some((dead.lane, dead.key.clone()?)));
    let keys: BTreeSet<_> = parked
        .chain(failed)
        .map(|parked| (parked.lane, parked.key.clone()))
        .chain(dead)
        .collect();
    keys.into_iter().collect()
}

//! Deletes old letters.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use mongodb::bson::doc;

use super::super::{
    connection::Connection,
    document,
    error::TxError,
    field, milliseconds,
    transaction::{Tx, Work},
};
use crate::{event::Seq, store::StoreError};

pub(super) async fn expire(
    connection: &Connection,
    age: Duration,
    limit: usize,
) -> Result<usize, StoreError> {
    if limit == 0 {
        return Ok(0);
    }
    connection.transaction(&Expiry { age, limit }).await
}

/// Deletes letters that died long ago, with their recoveries, except those that block their key. The index on
/// died_at serves it, for as many letters at a time as may be deleted.
struct Expiry {
    age: Duration,
    limit: usize,
}

#[async_trait]
impl Work for Expiry {
    type Done = usize;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<usize, TxError> {
        let old = document::timestamps(self.old(tx).await?);
        if old.is_empty() {
            return Ok(0);
        }
        tx.counted(2);
        let done = doc! { "seq": { "$in": &old } };
        tx.at
            .recoveries
            .delete_many(done)
            .session(&mut tx.session)
            .await?;
        let letters = doc! { "_id": { "$in": old } };
        let gone = tx.at.dead.delete_many(letters).session(&mut tx.session).await?;
        Ok(usize::try_from(gone.deleted_count).unwrap_or(usize::MAX))
    }
}

impl Expiry {
    async fn old(&self, tx: &mut Tx<'_>) -> Result<Vec<Seq>, TxError> {
        let at = tx.at;
        let latest = doc! { "$subtract": ["$$NOW", milliseconds(self.age)] };
        let find = at
            .dead
            .find(doc! { "$expr": { "$lte": ["$died_at", latest] } })
            .sort(doc! { "died_at": 1 })
            .projection(doc! { "_id": 1 })
            .batch_size(u32::try_from(self.limit).unwrap_or(u32::MAX));
        tx.counted(1);
        let mut letters = find.session(&mut tx.session).await?;
        let mut old = Vec::new();
        loop {
            let mut some = Vec::new();
            while some.len() < self.limit && letters.advance(&mut tx.session).await? {
                some.push(field::seq(&letters.deserialize_current()?, "_id"));
            }
            if some.is_empty() {
                return Ok(old);
            }
            let these = document::timestamps(some.iter().copied());
            let blocked = doc! { "_id": { "$in": these }, "state": "blocked" };
            let blocked = tx.find(&at.parked, blocked, doc! { "_id": 1 }).await?;
            let blocked: BTreeSet<Seq> = blocked.iter().map(|parked| field::seq(parked, "_id")).collect();
            old.extend(some.into_iter().filter(|seq| !blocked.contains(seq)));
            if old.len() >= self.limit {
                old.truncate(self.limit);
                return Ok(old);
            }
        }
    }
}

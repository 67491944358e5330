//! Letters that died long ago go.

use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::doc;

use super::{
    super::{
        connection::Connection,
        document,
        error::Trouble,
        field, milliseconds,
        transaction::{Tx, Work},
    },
    blocking, limited,
};
use crate::store::StoreError;

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

/// Letters that died long ago, with what was done about them, except where a key waits for what becomes of one. The index
/// on died_at serves it.
struct Expiry {
    age: Duration,
    limit: usize,
}

#[async_trait]
impl Work for Expiry {
    type Done = usize;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<usize, Trouble> {
        let latest = doc! { "$subtract": ["$$NOW", milliseconds(self.age)] };
        let old = vec![
            doc! { "$match": { "$expr": { "$lte": ["$died_at", latest] } } },
            doc! { "$sort": { "died_at": 1 } },
            doc! { "$project": { "_id": 1 } },
            blocking(tx.at),
            doc! { "$match": { "blocking": [] } },
            doc! { "$limit": limited(self.limit) },
        ];
        let old = tx.aggregate(&tx.at.dead, old).await?;
        let old = document::timestamps(old.iter().map(|found| field::seq(found, "_id")));
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

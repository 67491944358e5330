//! The versions of aggregates, from the rows.

use async_trait::async_trait;

use super::{MemoryStore, Status};
use pillarbox_relay::{
    check::versions::{Aggregate, AggregateVersions, LetThrough, VersionIndex},
    event::Seq,
    store::StoreError,
};

#[async_trait]
impl AggregateVersions for MemoryStore {
    async fn latest(&self, aggregates: &[Aggregate]) -> Result<Vec<Option<LetThrough>>, StoreError> {
        let world = self.call().await?;
        let let_through = |(kind, id): &Aggregate| {
            world
                .rows
                .values()
                .filter(|row| !matches!(row.status, Status::Pending | Status::Dead))
                .filter(|row| {
                    row.stored.event.aggregate_type == *kind && row.stored.event.aggregate_id == *id
                })
                .filter_map(|row| {
                    Some(LetThrough {
                        version: row.stored.event.aggregate_version?,
                        seq: row.stored.seq,
                    })
                })
                .max_by_key(|found| found.version)
        };
        Ok(aggregates.iter().map(let_through).collect())
    }

    async fn dead_among(&self, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError> {
        let world = self.call().await?;
        let dead = |seq: &&Seq| world.rows.get(seq).is_some_and(|row| row.status == Status::Dead);
        Ok(seqs.iter().filter(dead).copied().collect())
    }

    async fn has_index(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn make_index(&self, _index: VersionIndex) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    fn index_sql(&self, index: VersionIndex) -> String {
        format!("-- memory needs no index: {index:?}")
    }
}

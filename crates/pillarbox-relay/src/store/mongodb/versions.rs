//! The versions of aggregates, for the check that they increase.

use async_trait::async_trait;
use mongodb::bson::{Document, doc};

use super::{MongoStore, document, field, schema};
use crate::{
    check::versions::{Aggregate, AggregateVersions, LetThrough, VersionIndex},
    event::Seq,
    store::StoreError,
};

#[async_trait]
impl AggregateVersions for MongoStore {
    /// The index on (entity_id, entity_version) serves it, from the highest version of each aggregate downwards: it
    /// skips pending and dead events. One command serves all aggregates: it starts at the only document of a small
    /// collection, adds the list of aggregates and looks up each of them.
    async fn latest(&self, aggregates: &[Aggregate]) -> Result<Vec<Option<LetThrough>>, StoreError> {
        let mut latest = vec![None; aggregates.len()];
        if aggregates.is_empty() {
            return Ok(latest);
        }
        let at = self.connection.collections().await?;
        let asked = aggregates.iter().enumerate();
        let asked = asked.map(|(n, (kind, id))| doc! { "n": n as i64, "type": kind, "id": id });
        let asked: Vec<Document> = asked.collect();
        let highest = doc! {
            "from": at.events.name(),
            "let": { "type": "$asked.type", "id": "$asked.id" },
            "pipeline": [
                { "$match": {
                    "$expr": { "$and": [
                        { "$eq": ["$entity_id", "$$id"] },
                        { "$eq": ["$entity_type", "$$type"] },
                    ] },
                    "entity_version": { "$gte": i64::MIN },
                    "status": { "$in": ["published", "failed", "held", "delayed"] },
                } },
                { "$sort": { "entity_version": -1 } },
                { "$limit": 1 },
                { "$project": { "_id": 0, "entity_version": 1, "seq": 1 } },
            ],
            "as": "found",
        };
        let pipeline = [
            doc! { "$match": { "_id": schema::VERSION_ID } },
            doc! { "$project": { "asked": { "$literal": asked } } },
            doc! { "$unwind": "$asked" },
            doc! { "$lookup": highest },
            doc! { "$unwind": "$found" },
            doc! { "$project": { "n": "$asked.n", "version": "$found.entity_version", "seq": "$found.seq" } },
        ];
        let found: Vec<Document> = self.connection.all(at.meta.aggregate(pipeline)).await?;
        for found in &found {
            let place = usize::try_from(field::number(found, "n")).ok();
            if let Some(place) = place.and_then(|n| latest.get_mut(n)) {
                *place = Some(LetThrough {
                    version: field::number(found, "version"),
                    seq: field::seq(found, "seq"),
                });
            }
        }
        Ok(latest)
    }

    async fn dead_among(&self, seqs: &[Seq]) -> Result<Vec<Seq>, StoreError> {
        let at = self.connection.collections().await?;
        let dead = doc! { "seq": { "$in": document::timestamps(seqs.iter().copied()) }, "status": "dead" };
        let dead = at.events.find(dead).projection(doc! { "_id": 0, "seq": 1 });
        let dead: Vec<Document> = self.connection.all(dead).await?;
        Ok(dead.iter().map(|event| field::seq(event, "seq")).collect())
    }

    async fn has_index(&self) -> Result<bool, StoreError> {
        let at = self.connection.collections().await?;
        let names = self.connection.run(at.events.list_index_names()).await?;
        Ok(names.iter().any(|name| name == schema::VERSIONS_INDEX))
    }

    /// Every outbox has the plain index, unless a person dropped it.
    async fn make_index(&self, index: VersionIndex) -> Result<Vec<String>, StoreError> {
        let at = self.connection.collections().await?;
        let (name, model) = match index {
            VersionIndex::Plain => (schema::VERSIONS_INDEX, schema::versions()),
            VersionIndex::Unique => (schema::UNIQUE_VERSIONS_INDEX, schema::unique_versions()),
        };
        let names = self.connection.run(at.events.list_index_names()).await?;
        if names.iter().any(|there| there == name) {
            return Ok(Vec::new());
        }
        self.connection.run(at.events.create_index(model.model())).await?;
        Ok(vec![format!("created index {name} on {}", at.events.name())])
    }

    fn index_sql(&self, index: VersionIndex) -> String {
        let index = match index {
            VersionIndex::Plain => schema::versions(),
            VersionIndex::Unique => schema::unique_versions(),
        };
        schema::index_script(&self.connection.tables, &index)
    }
}

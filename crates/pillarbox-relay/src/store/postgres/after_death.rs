//! Applies the routes' `after_death` to the key of an event that died.

use pillarbox::table::Tables;

use super::{
    connection::{Connection, Sql, arguments, statement},
    settle::Tx,
};
use crate::{
    dead::{SUPERSEDED, superseded_fingerprint},
    event::Seq,
    route::AfterDeath,
    settlement::Dead,
    store::StoreError,
};

pub(super) struct Statements {
    keep_dead: Sql,
    superseded: Sql,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            keep_dead: statement(tables, include_str!("sql/settle/keep_dead.sql")),
            superseded: statement(tables, include_str!("sql/settle/superseded.sql")),
        }
    }

    /// Applies `after_death` to the events behind dead ones.
    pub(super) async fn apply(
        &self,
        connection: &Connection,
        tx: &mut Tx,
        dead: &[Dead],
    ) -> Result<(), StoreError> {
        let with = |after: AfterDeath| -> Vec<Seq> {
            let dead = dead.iter().filter(|dead| dead.after == after);
            dead.map(|dead| dead.seq).collect()
        };
        let blocking = with(AfterDeath::Block);
        if !blocking.is_empty() {
            connection
                .rows_in(tx, &self.keep_dead, arguments!(blocking)?)
                .await?;
        }
        let latest = with(AfterDeath::Latest);
        if let (false, Some(first)) = (latest.is_empty(), dead.first()) {
            let arguments = arguments!(
                latest,
                SUPERSEDED,
                &*first.failure.relay,
                superseded_fingerprint()
            )?;
            connection.rows_in(tx, &self.superseded, arguments).await?;
        }
        Ok(())
    }
}

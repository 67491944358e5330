//! Appends deaths in the transaction that writes their dead letters. A death is settled once, so it is appended once.

use mongodb::bson::Document;

use super::{
    super::{
        after_death::Letter,
        batch::{Batch, Known},
        error::{TxError, is_duplicate},
        transaction::Tx,
    },
    entry, positions,
};

impl Batch {
    /// Called after the fence: the positions are then lower than those of a relay that takes the lanes over.
    ///
    /// The positions are taken outside of the transaction, so that settlements do not wait for each other. If a reader
    /// makes one void meanwhile, the transaction runs again.
    pub(in super::super) async fn append_deaths(
        &self,
        tx: &mut Tx<'_>,
        letters: &[Letter],
    ) -> Result<(), TxError> {
        let mut logged: Vec<(&Letter, &Known)> = letters
            .iter()
            .filter(|letter| letter.logged)
            .filter_map(|letter| Some((letter, self.events.get(&letter.seq)?)))
            .collect();
        if logged.is_empty() {
            return Ok(());
        }
        logged.sort_by_key(|(letter, _)| letter.seq);
        let first = positions::take(tx.connection, logged.len()).await?;
        let entries: Vec<Document> = (first..)
            .zip(logged)
            .map(|(position, (letter, event))| {
                let failures = letter.failures(self.failures(letter.seq));
                entry::of_death(position, letter, event, failures, self.now)
            })
            .collect();
        tx.counted(1);
        match tx.at.log.insert_many(entries).session(&mut tx.session).await {
            Ok(_) => Ok(()),
            Err(error) if is_duplicate(&error) => {
                positions::pass_the_last(tx.connection).await?;
                Err(TxError::Again)
            }
            Err(error) => Err(error.into()),
        }
    }
}

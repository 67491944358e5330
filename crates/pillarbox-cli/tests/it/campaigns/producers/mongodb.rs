//! Producers that use the library in session transactions: commits, aborts, transactions that stay open for
//! seconds.

use std::sync::Arc;

use anyhow::Context as _;
use mongodb::{
    Client, ClientSession, Collection,
    bson::{Document, doc},
    options::ReturnDocument,
};
use pillarbox::Outbox;
use pillarbox_testkit::ledger::Ledger;
use rand::{SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Turn, Written, events, sleep};

const WRITERS: u64 = 3;

pub(in crate::campaigns) fn start(
    client: &Client,
    ledger: &Arc<Ledger>,
    seed: u64,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for n in 0..=WRITERS {
        let application = Application {
            client: client.clone(),
            ledger: Arc::clone(ledger),
            rng: StdRng::seed_from_u64(seed.wrapping_add(1_000 + n)),
            stop: stop.clone(),
        };
        let next = if n < WRITERS { Turn::short } else { Turn::long };
        writers.spawn(application.write_on(next));
    }
    writers
}

struct Application {
    client: Client,
    ledger: Arc<Ledger>,
    rng: StdRng,
    stop: CancellationToken,
}

impl Application {
    async fn write_on(mut self, next: fn(&mut StdRng) -> Turn) {
        while !self.stop.is_cancelled() {
            let turn = next(&mut self.rng);
            // An error before the commit means that nothing was committed.
            let _ = self.transact(&turn).await;
            sleep(turn.pause, &self.stop).await;
        }
    }

    async fn transact(&self, turn: &Turn) -> anyhow::Result<()> {
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        let written = match self.write(&mut session, &turn.key, turn.count).await {
            Ok(written) => written,
            Err(error) => {
                let _ = session.abort_transaction().await;
                return Err(error);
            }
        };
        sleep(turn.open, &self.stop).await;
        if turn.rolls_back {
            let _ = session.abort_transaction().await;
            written.rolled_back(&self.ledger);
        } else if session.commit_transaction().await.is_ok() {
            written.committed(&self.ledger);
        } else {
            written.in_doubt(&self.ledger);
        }
        Ok(())
    }

    /// Another transaction that changes the counter's document at the same time fails.
    async fn write(&self, session: &mut ClientSession, key: &str, count: u64) -> anyhow::Result<Written> {
        let counters: Collection<Document> = self.client.database("shop").collection("counters");
        let counted = counters
            .find_one_and_update(doc! {"_id": key}, doc! {"$inc": {"n": count as i64}})
            .upsert(true)
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await?
            .context("a counter")?;
        let events = events(key, count, counted.get_i64("n")? as u64);
        let all: Vec<_> = events.iter().map(|(event, _)| event.clone()).collect();
        Outbox::default().enqueue_all(session, &all).await?;
        Ok(Written::new(key, &events))
    }
}

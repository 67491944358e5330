//! The business transaction on MongoDB.

use anyhow::{Context as _, Result};
use mongodb::{
    Client, ClientSession, Collection,
    bson::{Document, doc},
};
use pillarbox::{Event, Outbox, enqueue};
use pillarbox_relay::connect::DatabaseOptions;

use super::{ACCOUNTS, Way};

pub(super) struct Shop {
    session: ClientSession,
    accounts: Collection<Document>,
    events: Collection<Document>,
}

impl Shop {
    pub(super) async fn open(options: &DatabaseOptions) -> Result<Self> {
        let client = Client::with_uri_str(&options.url).await?;
        let name = options.tables.name();
        let (database, events) = name.split_once('.').context("the outbox has no database")?;
        let database = client.database(database);
        let accounts = database.collection("accounts");
        let filled = (0..=ACCOUNTS).map(|id| doc! { "_id": id, "balance": 0_i64 });
        accounts.insert_many(filled).await?;
        Ok(Self {
            session: client.start_session().await?,
            accounts,
            events: database.collection(events),
        })
    }

    pub(super) async fn transact(
        &mut self,
        way: Way,
        outbox: &Outbox,
        account: i64,
        event: &Event,
    ) -> Result<()> {
        self.session.start_transaction().await?;
        self.accounts
            .update_one(doc! { "_id": account }, doc! { "$inc": { "balance": 1_i64 } })
            .session(&mut self.session)
            .await?;
        match way {
            Way::NotAtAll | Way::Function => {}
            Way::Enqueue | Way::EnqueueLimited => {
                outbox.enqueue(&mut self.session, event).await?;
            }
            Way::PlainInsert => {
                self.events
                    .insert_one(enqueue::mongodb_document(event))
                    .session(&mut self.session)
                    .await?;
            }
        }
        Ok(self.session.commit_transaction().await?)
    }
}

//! Users and their events: each change and its event in one transaction.

use anyhow::Result;
use futures::{FutureExt, TryStreamExt};
use mongodb::{
    Client, ClientSession, Collection, Database, IndexModel,
    bson::{doc, oid::ObjectId},
    error::{Error, ErrorKind, WriteFailure},
    options::{IndexOptions, ReturnDocument},
};
use pillarbox::{EnqueueError, Event, EventId, Outbox};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::TOPIC;

/// The maximum number of listed users.
const LIST_MAX: i64 = 1_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct User {
    #[serde(rename = "_id")]
    pub(crate) id: ObjectId,
    pub(crate) name: String,
    pub(crate) email: String,
    /// Increases with each change. The events contain it, so that a consumer can detect an older state.
    pub(crate) version: i64,
}

/// The data of a new user, or of a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) email: String,
}

#[derive(Debug)]
pub(crate) enum UsersError {
    /// Nothing was written, so this event will never be delivered.
    EmailTaken {
        event: EventId,
    },
    NotFound,
    Database(Error),
}

#[derive(Clone)]
pub(crate) struct Users {
    client: Client,
    users: Collection<User>,
    outbox: Outbox,
}

impl Users {
    pub(crate) async fn open(database: &Database) -> Result<Self> {
        let users = database.collection("users");
        let unique = IndexOptions::builder().unique(true).build();
        let email = IndexModel::builder()
            .keys(doc! { "email": 1 })
            .options(unique)
            .build();
        users.create_index(email).await?;
        Ok(Self {
            client: database.client().clone(),
            users,
            outbox: Outbox::default(),
        })
    }

    /// The driver runs the transaction again if the server says that a retry helps.
    pub(crate) async fn create(&self, profile: &Profile) -> Result<(User, EventId), UsersError> {
        let user = User {
            id: ObjectId::new(),
            name: profile.name.clone(),
            email: profile.email.clone(),
            version: 1,
        };
        let event = about(&user, "user.created", EventId::new());
        let mut session = self.client.start_session().await?;
        let transaction = session
            .start_transaction()
            .and_run((self, &user, &event), |session, all| {
                let (users, user, event) = *all;
                users.insert(session, user, event).boxed()
            });
        transaction
            .await
            .map_err(|error| explained(error, event.id.clone()))?;
        Ok((user, event.id))
    }

    /// The event is written first, to show that the order makes no difference: if the address is taken, the
    /// event is rolled back with the rest of the transaction.
    async fn insert(&self, session: &mut ClientSession, user: &User, event: &Event) -> Result<(), Error> {
        self.outbox.enqueue(session, event).await.map_err(drivers)?;
        self.users.insert_one(user).session(session).await?;
        Ok(())
    }

    pub(crate) async fn update(
        &self,
        id: ObjectId,
        profile: &Profile,
    ) -> Result<(User, EventId), UsersError> {
        let event = EventId::new();
        let mut session = self.client.start_session().await?;
        let transaction = session
            .start_transaction()
            .and_run((self, profile, &event), |session, all| {
                let (users, profile, event) = *all;
                users.change(session, id, profile, event).boxed()
            });
        let changed = transaction
            .await
            .map_err(|error| explained(error, event.clone()))?;
        Ok((changed.ok_or(UsersError::NotFound)?, event))
    }

    /// `None`: there is no such user.
    async fn change(
        &self,
        session: &mut ClientSession,
        id: ObjectId,
        profile: &Profile,
        event: &EventId,
    ) -> Result<Option<User>, Error> {
        let change = doc! {
            "$set": { "name": &profile.name, "email": &profile.email },
            "$inc": { "version": 1_i64 },
        };
        let change = self.users.find_one_and_update(doc! { "_id": id }, change);
        let changed = change
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await?;
        let Some(user) = changed else { return Ok(None) };
        let event = about(&user, "user.updated", event.clone());
        self.outbox.enqueue(session, &event).await.map_err(drivers)?;
        Ok(Some(user))
    }

    pub(crate) async fn list(&self) -> Result<Vec<User>, Error> {
        let users = self.users.find(doc! {}).sort(doc! { "_id": 1 });
        users.limit(LIST_MAX).await?.try_collect().await
    }
}

/// Its key is the user's id, so events of one user stay in order.
fn about(user: &User, event_type: &str, id: EventId) -> Event {
    let payload = json!({ "user_id": user.id.to_hex(), "name": user.name, "email": user.email });
    Event::to(TOPIC)
        .event_type(event_type)
        .aggregate("user", user.id.to_hex())
        .id(id)
        .aggregate_version(user.version)
        .payload(payload.to_string())
}

/// The driver's own error says whether the transaction may be retried.
fn drivers(error: EnqueueError) -> Error {
    match error {
        EnqueueError::Database(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::custom(error.to_string()),
        },
        refused => Error::custom(refused.to_string()),
    }
}

fn explained(error: Error, event: EventId) -> UsersError {
    const DUPLICATE_KEY: i32 = 11_000;
    let code = match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.code,
        ErrorKind::Command(error) => error.code,
        _ => 0,
    };
    match code {
        DUPLICATE_KEY => UsersError::EmailTaken { event },
        _ => UsersError::Database(error),
    }
}

impl From<Error> for UsersError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

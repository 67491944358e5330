//! The inbox, in each database.

use pillarbox::EventId;
use std::time::{Duration, Instant};

use pillarbox::inbox::{Database, Inbox, InboxError, Place, Seen, once, once_newer};
use pillarbox_testkit::{servers, wait};
use sqlx::{PgPool, SqlitePool};

/// Checks what every inbox must do.
async fn keeps_its_promises<D: Database>(database: &D) {
    let inbox = Inbox::default();
    let mut tx = database.begin().await.unwrap();
    let missing = once(&mut tx, "a", EventId::new()).await;
    // MongoDB creates collections by itself, so there the start of a consumer looks for the index.
    drop(tx);
    if !matches!(missing, Err(InboxError::NotMigrated { .. })) {
        assert!(matches!(
            database.check(&inbox).await,
            Err(InboxError::NotMigrated { .. })
        ));
    }
    inbox.migrate(database).await.unwrap();
    inbox.migrate(database).await.unwrap();
    database.check(&inbox).await.unwrap();

    let event = EventId::new();
    let see = async |group: &str, commits: bool| {
        let start = Instant::now();
        let (seen, tx) = loop {
            let mut tx = database.begin().await.unwrap();
            match once(&mut tx, group, &event).await {
                Ok(seen) => break (seen, tx),
                // MongoDB: the transaction of a dropped session ends a little later.
                Err(error) if D::is_conflict(&error) => {
                    assert!(start.elapsed() < wait::PATIENCE, "{error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        };
        if commits {
            database.commit(tx).await.unwrap();
        }
        seen
    };
    assert_eq!(
        see("a", false).await,
        Seen::First,
        "the first time was rolled back"
    );
    assert_eq!(see("a", true).await, Seen::First);
    assert_eq!(see("a", true).await, Seen::Before);
    assert_eq!(
        see("b", true).await,
        Seen::First,
        "each group must have its own entries"
    );

    let newer = async |event: EventId, version: i64| {
        let mut tx = database.begin().await.unwrap();
        let seen = once_newer(&mut tx, "a", event, "order:1", version).await.unwrap();
        database.commit(tx).await.unwrap();
        seen
    };
    let third = EventId::new();
    assert_eq!(newer(third.clone(), 3).await, Seen::First);
    assert_eq!(newer(third, 3).await, Seen::Before);
    assert_eq!(newer(EventId::new(), 3).await, Seen::Stale { last: 3 });
    assert_eq!(newer(EventId::new(), 2).await, Seen::Stale { last: 3 });
    assert_eq!(newer(EventId::new(), 5).await, Seen::First);

    assert_eq!(
        inbox
            .forget(database, "a", Duration::from_secs(3_600))
            .await
            .unwrap(),
        0
    );
    assert_eq!(inbox.forget(database, "a", Duration::MAX).await.unwrap(), 0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(
        inbox
            .forget(database, "a", Duration::from_millis(10))
            .await
            .unwrap(),
        5
    );
    assert_eq!(see("a", true).await, Seen::First, "its entry was deleted");
    assert_eq!(
        see("b", true).await,
        Seen::Before,
        "entries of another group must not be deleted"
    );
    assert_eq!(
        newer(EventId::new(), 5).await,
        Seen::Stale { last: 5 },
        "versions must not be deleted"
    );
}

/// A start without an end is counted until the transaction of its effect commits.
async fn counts_what_did_not_end<D: Database>(database: &D) {
    let inbox = Inbox::default();
    let inbox = database.place(&inbox);
    let at = |group| Place { inbox: &inbox, group };
    // An id is any text, also beyond ASCII.
    let (member, event) = (EventId::new(), EventId::from("заказ 7"));
    database.enter(at("c"), &member).await.unwrap();
    database.enter(at("c"), &member).await.unwrap();
    let rows = async || {
        let mut rows: Vec<_> = database.begun(at("c")).await.unwrap();
        rows.sort_by_key(|row| row.times);
        rows.into_iter()
            .map(|row| (row.id, row.times))
            .collect::<Vec<_>>()
    };
    for (alone, expected) in [(false, 1), (false, 1), (true, 2), (true, 3)] {
        let begun = database.begins(at("c"), &event, alone).await.unwrap();
        assert_eq!(begun, Some(expected));
    }
    assert_eq!(database.begins(at("cc"), &event, false).await.unwrap(), Some(1));
    assert_eq!(
        rows().await,
        [(member.clone(), 0), (event.clone(), 3)],
        "each group must have its own counts"
    );
    database.ends(at("c"), &event).await.unwrap();
    assert_eq!(rows().await, [(member.clone(), 0), (event.clone(), 2)]);
    for commits in [false, true] {
        // MongoDB rolls a dropped transaction back in the background. Until then the next one conflicts with it.
        let mut tx = wait::until_ok(async || {
            let mut tx = database.begin().await.unwrap();
            match inbox.once(&mut tx, "c", &event).await {
                Ok(seen) => {
                    assert_eq!(seen, Seen::First);
                    Ok(tx)
                }
                Err(error) if D::is_conflict(&error) => Err(error),
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        inbox.ended(&mut tx, "c", &event).await.unwrap();
        if commits {
            database.commit(tx).await.unwrap();
            assert_eq!(rows().await, [(member.clone(), 0)]);
        } else {
            drop(tx);
            super::harness::until("it is rolled back", async || rows().await.len() == 2).await;
        }
    }
    assert_eq!(
        database.begins(at("c"), &event, true).await.unwrap(),
        None,
        "it was processed"
    );
    // A process that dies while it waits for another's commit leaves the row of a processed event.
    let late = EventId::new();
    database.begins(at("c"), &late, false).await.unwrap();
    let mut tx = database.begin().await.unwrap();
    assert_eq!(inbox.once(&mut tx, "c", &late).await.unwrap(), Seen::First);
    database.commit(tx).await.unwrap();
    assert_eq!(
        rows().await,
        [(member.clone(), 0)],
        "the row of a processed event must be removed"
    );
    database.tidy(at("c")).await.unwrap();
    assert_eq!(rows().await, [(member.clone(), 0)], "nothing is old");
    database.ends(at("cc"), &event).await.unwrap();
    database.leave(at("c"), &member).await.unwrap();
    assert!(rows().await.is_empty() && database.begun(at("cc")).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_in_postgres_keeps_its_promises() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let pool = PgPool::connect(&postgres.database().await).await.unwrap();
    keeps_its_promises(&pool).await;
    counts_what_did_not_end(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_in_sqlite_keeps_its_promises() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("inbox.db").display());
    let pool = SqlitePool::connect(&url).await.unwrap();
    keeps_its_promises(&pool).await;
    counts_what_did_not_end(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_in_mongodb_keeps_its_promises() {
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let client = mongodb::Client::with_uri_str(mongo.database()).await.unwrap();
    let database = client.default_database().unwrap();
    keeps_its_promises(&database).await;
    counts_what_did_not_end(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_transaction_remembers_nothing() {
    let Some(mongo) = servers::mongo().await else {
        return;
    };
    let client = mongodb::Client::with_uri_str(mongo.database()).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    let refused = once(&mut session, "a", EventId::new()).await;
    assert!(matches!(refused, Err(InboxError::NoTransaction)), "{refused:?}");
}

/// PostgreSQL's `commit` would roll back without an error. The event would be acknowledged and lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_statement_that_a_handler_passes_over_is_no_commit() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let pool = PgPool::connect(&postgres.database().await).await.unwrap();
    Inbox::default().migrate(&pool).await.unwrap();
    let event = EventId::new();
    let mut tx = Database::begin(&pool).await.unwrap();
    assert_eq!(once(&mut tx, "a", &event).await.unwrap(), Seen::First);
    assert!(sqlx::query("select 1/0").execute(&mut *tx).await.is_err());
    let refused = Database::commit(&pool, tx).await;
    assert!(matches!(refused, Err(InboxError::Aborted)), "{refused:?}");
    let mut tx = Database::begin(&pool).await.unwrap();
    assert_eq!(once(&mut tx, "a", &event).await.unwrap(), Seen::First);
    assert!(sqlx::query("savepoint s").execute(&mut *tx).await.is_ok());
    assert!(sqlx::query("select 1/0").execute(&mut *tx).await.is_err());
    assert!(
        sqlx::query("rollback to savepoint s")
            .execute(&mut *tx)
            .await
            .is_ok()
    );
    Database::commit(&pool, tx).await.unwrap();
    let mut tx = Database::begin(&pool).await.unwrap();
    assert_eq!(once(&mut tx, "a", event).await.unwrap(), Seen::Before);
}

/// If two transactions see an event at the same time, the second waits for the result of the first.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_transactions_that_see_an_event_at_the_same_time_one_is_first() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let pool = PgPool::connect(&postgres.database().await).await.unwrap();
    Inbox::default().migrate(&pool).await.unwrap();
    for commits in [true, false] {
        let event = EventId::new();
        let mut first = pool.begin().await.unwrap();
        assert_eq!(once(&mut first, "a", &event).await.unwrap(), Seen::First);
        let other = pool.clone();
        let second = tokio::spawn(async move {
            let mut second = other.begin().await.unwrap();
            let seen = once(&mut second, "a", event).await.unwrap();
            second.commit().await.unwrap();
            seen
        });
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        super::harness::until("the second waits", async || {
            let waiting: i64 = sqlx::query_scalar(waits).fetch_one(&pool).await.unwrap();
            waiting == 1
        })
        .await;
        if commits {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
        let expected = if commits { Seen::Before } else { Seen::First };
        assert_eq!(second.await.unwrap(), expected);
    }
}

/// Deleting old entries skips rows that a consumer has locked. Consumers wait for at most one batch of it.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_old_entries_waits_for_no_transaction() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let pool = PgPool::connect(&postgres.database().await).await.unwrap();
    Inbox::default().migrate(&pool).await.unwrap();
    sqlx::raw_sql(
        "insert into processed_events (consumer_group, event_id, processed_at)
         select 'a', gen_random_uuid(), now() - interval '8 days' from generate_series(1, 2500)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let mut reader = pool.begin().await.unwrap();
    sqlx::raw_sql("select 1 from processed_events limit 1 for update")
        .execute(&mut *reader)
        .await
        .unwrap();
    let forgetting = Inbox::default();
    let week = Duration::from_secs(7 * 86_400);
    let forgotten = tokio::time::timeout(Duration::from_secs(30), forgetting.forget(&pool, "a", week));
    assert_eq!(forgotten.await.unwrap().unwrap(), 2_499);
    reader.rollback().await.unwrap();
    assert_eq!(forgetting.forget(&pool, "a", week).await.unwrap(), 1);
}

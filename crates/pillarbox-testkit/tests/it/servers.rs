use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use pillarbox_testkit::servers::{
    self, Kafka, Mongo, MongoOptions, Nats, NatsOptions, NatsVersion, Pgbouncer, Postgres, PostgresOptions,
};
use pillarbox_testkit::wait;
use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
    producer::{FutureProducer, FutureRecord},
};
use sqlx::{Connection, PgConnection};

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn number(connection: &mut PgConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn every_database_of_the_shared_postgres_is_new_and_empty() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let (first, second) = (postgres.database().await, postgres.database().await);
    assert_ne!(first, second);
    sqlx::query("create table only_here (id int)")
        .execute(&mut connect(&first).await)
        .await
        .unwrap();
    let tables = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(number(&mut connect(&first).await, tables).await, 1);
    assert_eq!(number(&mut connect(&second).await, tables).await, 0);
}

#[tokio::test]
async fn postgres_runs_in_the_version_asked_for_and_keeps_what_it_committed() {
    let options = PostgresOptions::default().set("work_mem", "7MB");
    let version = options.version;
    let Some(mut postgres) = Postgres::start(options).await else {
        return;
    };
    let mut connection = connect(&postgres.url()).await;
    let running = number(
        &mut connection,
        "select current_setting('server_version_num')::bigint / 10000",
    )
    .await;
    assert_eq!(running, i64::from(version));
    for (name, wanted) in [("fsync", "on"), ("wal_level", "logical"), ("work_mem", "7MB")] {
        let set: String = sqlx::query_scalar("select current_setting($1)")
            .bind(name)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(set, wanted, "{name}");
    }

    sqlx::query("create table kept as select 42::bigint as answer")
        .execute(&mut connection)
        .await
        .unwrap();
    postgres.kill().await;
    assert!(PgConnection::connect(&postgres.url()).await.is_err());
    postgres.start_again().await;
    postgres.restart().await;
    assert_eq!(
        number(&mut connect(&postgres.url()).await, "select answer from kept").await,
        42
    );
}

#[tokio::test]
async fn a_paused_postgres_answers_only_after_it_is_resumed() {
    let Some(mut postgres) = Postgres::start(PostgresOptions::default()).await else {
        return;
    };
    let mut connection = connect(&postgres.url()).await;
    postgres.pause().await;
    let mut answer = tokio::spawn(async move { number(&mut connection, "select 1::bigint").await });
    assert!(
        tokio::time::timeout(Duration::from_millis(300), &mut answer)
            .await
            .is_err()
    );
    postgres.resume().await;
    assert_eq!(answer.await.unwrap(), 1);
}

#[tokio::test]
async fn nats_comes_back_on_its_port_with_its_streams() {
    let Some(mut nats) = Nats::start().await else {
        return;
    };
    let publish = async |text: &'static str| {
        let jetstream = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
        let config = async_nats::jetstream::stream::Config {
            name: "KEPT".to_owned(),
            subjects: vec!["kept.>".to_owned()],
            ..Default::default()
        };
        jetstream.get_or_create_stream(config).await.unwrap();
        jetstream
            .publish("kept.it", text.into())
            .await
            .unwrap()
            .await
            .unwrap()
            .sequence
    };
    assert_eq!(publish("first").await, 1);
    nats.kill().await;
    assert!(async_nats::connect(nats.url()).await.is_err());
    nats.start_again().await;
    nats.restart().await;
    let jetstream = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    assert_eq!(
        jetstream
            .get_stream("KEPT")
            .await
            .unwrap()
            .cached_info()
            .state
            .messages,
        1
    );
}

#[tokio::test]
async fn nats_runs_in_the_version_and_with_the_configuration_asked_for() {
    for (version, number) in [(NatsVersion::Current, "2.15."), (NatsVersion::Old, "2.9.")] {
        let options = NatsOptions {
            version,
            configuration: "max_payload: 4321".into(),
        };
        let Some(mut nats) = Nats::start_with(options).await else {
            return;
        };
        let info = async |nats: &Nats| async_nats::connect(nats.url()).await.unwrap().server_info();
        let first = info(&nats).await;
        assert!(first.version.starts_with(number), "{}", first.version);
        assert_eq!(first.max_payload, 4321);
        nats.restart().await;
        assert_eq!(info(&nats).await.max_payload, 4321);
        nats.reconfigure("max_payload: 9876").await;
        assert_eq!(info(&nats).await.max_payload, 9876);
    }
}

#[tokio::test]
async fn a_session_through_the_pooler_reaches_the_same_database() {
    let Some(postgres) = servers::postgres().await else {
        return;
    };
    let Some(pooler) = Pgbouncer::start(postgres).await else {
        return;
    };
    let url = postgres.database().await;
    sqlx::query("create table seen as select 7::bigint as n")
        .execute(&mut connect(&url).await)
        .await
        .unwrap();
    assert_ne!(pooler.through(&url), url);
    let mut pooled = connect(&pooler.through(&url)).await;
    let seen: i64 = sqlx::query_scalar("select n from seen")
        .persistent(false)
        .fetch_one(&mut pooled)
        .await
        .unwrap();
    assert_eq!(seen, 7);
}

#[tokio::test]
async fn a_dropped_server_leaves_no_process_and_no_folder() {
    let Some(postgres) = Postgres::start(PostgresOptions::default()).await else {
        return;
    };
    let mut connection = connect(&postgres.url()).await;
    let data: String = sqlx::query_scalar("show data_directory")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(Path::new(&data).exists());
    drop(postgres);
    assert!(!Path::new(&data).parent().unwrap().exists());
    assert!(sqlx::query("select 1").execute(&mut connection).await.is_err());
}

#[tokio::test]
async fn a_process_killed_with_its_servers_leaves_nothing_behind() {
    if servers::postgres().await.is_none() || Nats::start().await.is_none() {
        return;
    }
    // `cat` ends by itself when this pipe closes.
    let mut process = Command::new(env!("CARGO_BIN_EXE_servers"))
        .arg("cat")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let postgres = said
        .next()
        .unwrap()
        .replace("PILLARBOX_OUTBOX__DATABASE__URL=", "");
    let nats = said
        .next()
        .unwrap()
        .replace("PILLARBOX_OUTBOX__SINKS__EVENTS__URL=nats://", "");
    let mut connection = connect(&postgres).await;
    let data: String = sqlx::query_scalar("show data_directory")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let folder = Path::new(&data).parent().unwrap();
    let port = number(&mut connection, "select current_setting('port')::bigint").await;
    let listens = |address: &str| TcpStream::connect(address).is_ok();
    let addresses = [format!("127.0.0.1:{port}"), nats];
    assert!(addresses.iter().all(|address| listens(address)));

    process.kill().unwrap();
    process.wait().unwrap();
    let all = format!("{} and {addresses:?} are gone", folder.display());
    wait::until(&all, async || {
        !folder.exists() && !addresses.iter().any(|address| listens(address))
    })
    .await;
}

#[tokio::test]
async fn kafka_keeps_its_topics_when_it_is_killed() {
    let Some(mut kafka) = Kafka::start().await else {
        return;
    };
    kafka.create_topic("kept", 3).await;
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .set("acks", "all")
        .create()
        .unwrap();
    let record = FutureRecord::to("kept").key("k").payload("1");
    producer.send(record, Duration::from_secs(10)).await.unwrap();
    kafka.kill().await;
    kafka.start_again().await;
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .set("group.id", "test")
        .create()
        .unwrap();
    let metadata = consumer
        .fetch_metadata(Some("kept"), Duration::from_secs(10))
        .unwrap();
    assert_eq!(metadata.topics()[0].partitions().len(), 3);
    let written: i64 = (0..3)
        .map(|partition| {
            let (low, high) = consumer
                .fetch_watermarks("kept", partition, Duration::from_secs(10))
                .unwrap();
            high - low
        })
        .sum();
    assert_eq!(written, 1);
}

#[tokio::test]
async fn mongodb_keeps_what_it_committed_when_it_is_killed() {
    let Some(mut mongo) = Mongo::start().await else {
        return;
    };
    let client = mongodb::Client::with_uri_str(mongo.url_of("kept")).await.unwrap();
    let things = client.database("kept").collection::<Document>("things");
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let thing = doc! {"_id": 1};
    things.insert_one(thing).session(&mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    mongo.kill(0).await;
    mongo.start_again(0).await;
    let client = mongodb::Client::with_uri_str(mongo.url_of("kept")).await.unwrap();
    let things = client.database("kept").collection::<Document>("things");
    assert_eq!(things.count_documents(doc! {}).await.unwrap(), 1);
}

#[tokio::test]
async fn another_member_becomes_mongodbs_primary() {
    let options = MongoOptions {
        members: 3,
        ..MongoOptions::default()
    };
    let Some(mut mongo) = Mongo::start_with(options).await else {
        return;
    };
    let first = mongo.primary().await;
    mongo.kill(first).await;
    assert_ne!(mongo.primary().await, first);
    mongo.start_again(first).await;
}

//! The example `orders`: TypeORM and plain pg.

use pillarbox_testkit::servers::{self, Nats};
use tokio::process::Command;

use super::{Service, example, migrate, nothing_outlives, number, run, told};

/// One of the programs of the example, and a database.
async fn scene(program: &str) -> Option<(Command, String)> {
    let (node, modules) = servers::orders_node()?;
    let database = servers::postgres().await?.database().await;
    let mut command = Command::new(node);
    command.arg(example("orders/run.mjs")).arg(modules).arg(program);
    Some((command, database))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_an_order_is_in_jetstream_once_and_none_that_was_rolled_back() {
    let Some((mut story, database)) = scene("story").await else {
        return;
    };
    let Some(nats) = Nats::start().await else { return };
    story
        .args(["--once", "--pillarbox", env!("CARGO_BIN_EXE_pillarbox")])
        .env("PILLARBOX_OUTBOX__SINKS__EVENTS__URL", nats.url());
    let told = told(&run(&mut story, &database).await);
    assert!(
        told.contains("16 events were committed, and each arrived once"),
        "{told}"
    );
    assert_eq!(number(&database, "select count(*) from orders").await, 11);
    let published = "select count(*) from outbox_events e join orders o on o.id::text = e.aggregate_id
        where e.status = 'published' and e.aggregate_type = 'Order' and e.user_id = o.customer
          and e.payload::json->>'customer' = o.customer";
    assert_eq!(number(&database, published).await, 16);
    assert_eq!(number(&database, "select count(*) from outbox_events").await, 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_orders_pass_the_pressure_on() {
    let Some((mut command, database)) = scene("main").await else {
        return;
    };
    migrate(&database).await;
    let port = servers::free_port();
    command.env("PORT", port.to_string());
    let service = Service::start(&mut command, &database, port).await;
    let taken = service
        .feels_the_pressure("/orders", "", r#"{"customer": "ada", "total": 7}"#)
        .await;
    assert_eq!(number(&database, "select count(*) from orders").await, taken);
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_killed_leave_nothing_running() {
    let Some((mut story, database)) = scene("story").await else {
        return;
    };
    let Some(nats) = Nats::start().await else { return };
    story
        .args(["--pillarbox", env!("CARGO_BIN_EXE_pillarbox")])
        .env("PILLARBOX_OUTBOX__SINKS__EVENTS__URL", nats.url());
    nothing_outlives(&mut story, &database).await;
}

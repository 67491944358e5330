//! An application that relays its own events: `cargo run -p pillarbox-relay --example embedded`
//!
//! It writes an order and its event in one transaction (SQLite, in ./embedded.db). The relay in the same process prints
//! the event after the commit.

use pillarbox::{Event, Outbox};
use pillarbox_relay::Relay;
use sqlx::SqlitePool;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let outbox = Outbox::default();
    let relay = Relay::open("sqlite:embedded.db", "stdout:")?;
    relay.store.admin.migrate().await?;
    let relay = relay.start();

    let pool = SqlitePool::connect("sqlite:embedded.db").await?;
    let mut tx = pool.begin().await?;
    sqlx::query("create table if not exists orders (id integer primary key, total integer)")
        .execute(&mut *tx)
        .await?;
    let order = sqlx::query("insert into orders (total) values (4200)")
        .execute(&mut *tx)
        .await?;
    let id = order.last_insert_rowid().to_string();
    let event = Event::to("shop.order")
        .event_type("OrderPlaced")
        .aggregate("order", &id)
        .payload(r#"{"total":4200}"#);
    outbox.enqueue(&mut tx, &event).await?;
    tx.commit().await?;

    tokio::signal::ctrl_c().await?;
    relay.stop().await?;
    Ok(())
}

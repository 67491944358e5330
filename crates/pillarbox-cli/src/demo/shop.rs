//! The application. It knows its orders and `pillarbox::Outbox`, but no relays or streams.

use std::path::Path;

use anyhow::Result;
use pillarbox::{Event, EventId, Outbox};
use serde_json::json;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

const CUSTOMERS: [&str; 5] = ["Ada", "Ben", "Chloe", "Dev", "Elif"];
const GOODS: [(&str, i64); 7] = [
    ("a teapot", 2490),
    ("two mugs", 1280),
    ("a lamp", 4900),
    ("a notebook", 650),
    ("a kite", 1995),
    ("a chess set", 3750),
    ("a bread knife", 1590),
];

/// One order as the shop recorded it.
pub(super) struct Order {
    pub(super) number: u32,
    pub(super) customer: &'static str,
    pub(super) item: &'static str,
    pub(super) cents: i64,
    pub(super) event_id: EventId,
    pub(super) committed: bool,
}

pub(super) struct Shop {
    pool: SqlitePool,
    outbox: Outbox,
}

impl Shop {
    pub(super) async fn open(database: &Path) -> Result<Self> {
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(database)).await?;
        sqlx::raw_sql(include_str!("shop/orders.sql"))
            .execute(&pool)
            .await?;
        Ok(Self {
            pool,
            outbox: Outbox::default(),
        })
    }

    /// Writes the order and its event in one transaction. Every third card is declined, which is known only
    /// after both were written. Then both are rolled back.
    pub(super) async fn place(&self, number: u32) -> Result<Order> {
        let index = number as usize;
        let customer = CUSTOMERS[(index * 7 + index / 5) % CUSTOMERS.len()];
        let (item, cents) = GOODS[index % GOODS.len()];
        let event = Event::to("shop.order.placed")
            .event_type("OrderPlaced")
            .aggregate("order", format!("o-{number}"))
            .partition_key(customer)
            .json(&json!({ "order": number, "customer": customer, "item": item, "total_cents": cents }))?;

        let mut tx = self.pool.begin_with("begin immediate").await?;
        sqlx::query(include_str!("shop/place.sql"))
            .bind(event.id.to_string())
            .bind(customer)
            .bind(item)
            .bind(cents)
            .execute(&mut *tx)
            .await?;
        self.outbox.enqueue(&mut tx, &event).await?;
        let committed = number % 3 != 2;
        if committed {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        Ok(Order {
            number,
            customer,
            item,
            cents,
            event_id: event.id,
            committed,
        })
    }

    pub(super) async fn close(self) {
        self.pool.close().await;
    }
}

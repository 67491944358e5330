//! The business transaction on SQLite.

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, Result};
use pillarbox::{Event, Outbox, lane::lane_of};
use pillarbox_relay::connect::DatabaseOptions;
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr, SqlStr, SqliteConnection, sqlite::SqliteConnectOptions};

use super::{ACCOUNTS, Way};

pub(super) struct Shop {
    connection: SqliteConnection,
    change: SqlStr,
    insert: SqlStr,
}

impl Shop {
    pub(super) async fn open(options: &DatabaseOptions) -> Result<Self> {
        let sql = |text: &str| AssertSqlSafe(options.tables.render(text)).into_sql_str();
        let file = SqliteConnectOptions::from_str(&options.url)?.busy_timeout(Duration::from_secs(10));
        let mut connection = SqliteConnection::connect_with(&file).await?;
        sqlx::raw_sql(sql(
            "create table {events_accounts} (id integer primary key, balance integer not null)",
        ))
        .execute(&mut connection)
        .await?;
        let fill = "insert into {events_accounts}
                    with recursive n (n) as (select 0 union all select n + 1 from n where n < ?1) select n, 0 from n";
        sqlx::query(sql(fill))
            .bind(ACCOUNTS)
            .execute(&mut connection)
            .await?;
        Ok(Self {
            connection,
            change: sql("update {events_accounts} set balance = balance + 1 where id = ?1"),
            insert: sql(
                "insert into {events} (lane, id, topic, event_type, schema_version, aggregate_type, aggregate_id,
                                       created_at, headers, payload)
                 values (?1, ?2, ?3, ?4, 1, ?5, ?6, unixepoch('subsec') * 1000000, '{}', ?7)",
            ),
        })
    }

    pub(super) async fn transact(
        &mut self,
        way: Way,
        outbox: &Outbox,
        account: i64,
        event: &Event,
    ) -> Result<()> {
        let mut tx = self.connection.begin_with("begin immediate").await?;
        sqlx::query(self.change.clone())
            .bind(account)
            .execute(&mut *tx)
            .await?;
        match way {
            Way::NotAtAll | Way::Function => {}
            Way::Enqueue | Way::EnqueueLimited => {
                outbox.enqueue(&mut tx, event).await?;
            }
            Way::PlainInsert => {
                sqlx::query(self.insert.clone())
                    .bind(i64::from(lane_of(event.key())))
                    .bind(event.id.to_string())
                    .bind(&event.topic)
                    .bind(&event.event_type)
                    .bind(&event.aggregate_type)
                    .bind(&event.aggregate_id)
                    .bind(std::str::from_utf8(&event.payload)?)
                    .execute(&mut *tx)
                    .await
                    .context("the plain insert")?;
            }
        }
        Ok(tx.commit().await?)
    }

    pub(super) async fn close(self) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

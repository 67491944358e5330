//! The business transaction on PostgreSQL.

use anyhow::Result;
use pillarbox::{Event, Outbox};
use pillarbox_relay::connect::DatabaseOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqlSafeStr, SqlStr};

use super::{ACCOUNTS, Way};

pub(super) struct Shop {
    connection: PgConnection,
    change: SqlStr,
    insert: SqlStr,
    function: SqlStr,
}

impl Shop {
    pub(super) async fn open(options: &DatabaseOptions) -> Result<Self> {
        let sql = |text: &str| AssertSqlSafe(options.tables.render(text)).into_sql_str();
        let mut connection = PgConnection::connect(&options.url).await?;
        sqlx::raw_sql(sql(
            "create table {events_accounts} (id bigint primary key, balance bigint not null)",
        ))
        .execute(&mut connection)
        .await?;
        sqlx::query(sql(
            "insert into {events_accounts} select n, 0 from generate_series(0, $1) n",
        ))
        .bind(ACCOUNTS)
        .execute(&mut connection)
        .await?;
        Ok(Self {
            connection,
            change: sql("update {events_accounts} set balance = balance + 1 where id = $1"),
            insert: sql(
                "insert into {events} (id, topic, event_type, aggregate_type, aggregate_id, payload)
                 values ($1, $2, $3, $4, $5, $6)",
            ),
            function: sql(
                "select {events_enqueue}(id => $1, topic => $2, event_type => $3, aggregate_type => $4, key => $5,
                                         payload => $6::text)",
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
        let mut tx = self.connection.begin().await?;
        sqlx::query(self.change.clone())
            .bind(account)
            .execute(&mut *tx)
            .await?;
        let by_hand = match way {
            Way::NotAtAll => None,
            Way::Enqueue | Way::EnqueueLimited => {
                outbox.enqueue(&mut tx, event).await?;
                None
            }
            Way::PlainInsert => Some(&self.insert),
            Way::Function => Some(&self.function),
        };
        if let Some(statement) = by_hand {
            sqlx::query(statement.clone())
                .bind(event.id.to_string())
                .bind(&event.topic)
                .bind(&event.event_type)
                .bind(&event.aggregate_type)
                .bind(&event.aggregate_id)
                .bind(std::str::from_utf8(&event.payload)?)
                .execute(&mut *tx)
                .await?;
        }
        Ok(tx.commit().await?)
    }

    pub(super) async fn close(self) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

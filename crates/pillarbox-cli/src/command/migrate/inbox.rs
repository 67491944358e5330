//! The inbox's tables, which belong to consumers: in their database, under the default names.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use pillarbox::Inbox;
use pillarbox_relay::store::sqlite::make_private;
use sqlx::{PgPool, SqlitePool, sqlite::SqliteConnectOptions};

/// The SQL, without connecting.
pub(super) fn sql(url: &str) -> Result<String> {
    let inbox = Inbox::default();
    match scheme(url) {
        "postgres" | "postgresql" => Ok(inbox.postgres_sql()),
        "sqlite" => Ok(inbox.sqlite_sql()),
        "mongodb" | "mongodb+srv" => {
            bail!("MongoDB has no SQL: run `pillarbox migrate --inbox` without `--print`")
        }
        other => bail!("`{other}:` is no database this build knows"),
    }
}

pub(super) async fn migrate(url: &str) -> Result<()> {
    let inbox = Inbox::default();
    match scheme(url) {
        "postgres" | "postgresql" => {
            let pool = PgPool::connect(url)
                .await
                .context("can't connect to PostgreSQL")?;
            inbox.migrate(&pool).await?;
        }
        "sqlite" => {
            let file = SqliteConnectOptions::from_str(url)
                .context("the address of the SQLite database can't be read")?
                .create_if_missing(true);
            make_private(file.get_filename());
            let pool = SqlitePool::connect_with(file)
                .await
                .context("can't open the SQLite database")?;
            inbox.migrate(&pool).await?;
        }
        #[cfg(feature = "mongodb")]
        "mongodb" | "mongodb+srv" => {
            let client = mongodb::Client::with_uri_str(url)
                .await
                .context("can't connect to MongoDB")?;
            let database = client
                .default_database()
                .context("the address names no database: put it after the host, as in mongodb://host/shop")?;
            inbox.migrate(&database).await?;
        }
        other => bail!("`{other}:` is no database this build knows"),
    }
    Ok(())
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or(url, |(scheme, _)| scheme)
}

//! The inbox's tables. They belong to consumers: they are in the consumer's database, under the default
//! names.

use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use pillarbox::Inbox;
use pillarbox_relay::{driver, store::sqlite::make_private};
use sqlx::{PgPool, SqlitePool, sqlite::SqliteConnectOptions};

/// The SQL, without connecting.
pub(super) fn sql(url: &str) -> Result<String> {
    let inbox = Inbox::default();
    match kind(url) {
        Some("postgres") => Ok(inbox.postgres_sql()),
        Some("sqlite") => Ok(inbox.sqlite_sql()),
        Some("mongodb") => {
            bail!("MongoDB has no SQL: run `pillarbox migrate --inbox` without `--print`")
        }
        _ => bail!(
            "this is not the address of a database. Use {}",
            driver::store_examples()
        ),
    }
}

pub(super) async fn migrate(url: &str) -> Result<()> {
    let inbox = Inbox::default();
    match kind(url) {
        Some("postgres") => {
            let pool = PgPool::connect(url)
                .await
                .context("can't connect to PostgreSQL")?;
            inbox.migrate(&pool).await?;
        }
        Some("sqlite") => {
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
        Some("mongodb") => {
            let client = mongodb::Client::with_uri_str(url)
                .await
                .context("can't connect to MongoDB")?;
            let database = client
                .default_database()
                .context("the address names no database: put it after the host, as in mongodb://host/shop")?;
            inbox.migrate(&database).await?;
        }
        #[cfg(not(feature = "mongodb"))]
        Some("mongodb") => {
            bail!(driver::store(url).map_or_else(String::new, |driver| driver.about.missing()))
        }
        _ => bail!(
            "this is not the address of a database. Use {}",
            driver::store_examples()
        ),
    }
    Ok(())
}

fn kind(url: &str) -> Option<&'static str> {
    driver::store(url).map(|driver| driver.about.kind)
}

//! The database that the address names.

use anyhow::{Context, Result};
use mongodb::{Client, Database};

pub(crate) async fn open(address: &str) -> Result<Database> {
    let client = Client::with_uri_str(address)
        .await
        .context("MongoDB's address can't be used")?;
    let database = client.default_database();
    database.context("MongoDB's address names no database: put it after the host, as in mongodb://host/shop")
}

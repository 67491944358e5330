//! The reports of relays, for both SQL databases.

use super::{SqlDatabase, SqlRow};
use crate::store::{StoreError, Trouble, trouble};

/// The troubles that the relays that are alive report.
pub(in crate::store) async fn troubles(database: &impl SqlDatabase) -> Result<Vec<Trouble>, StoreError> {
    let sql = database.statement(include_str!("relays/troubles.sql"));
    let rows = database.query(sql, arguments!()).await?;
    let troubles = database.read_rows(&rows, |row| Ok(trouble::from_json(&row.text(0)?)))?;
    Ok(troubles.into_iter().flatten().collect())
}

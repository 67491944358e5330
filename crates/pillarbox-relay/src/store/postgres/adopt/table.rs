//! What the catalogue says about the adopted table, and how far its adoption is.

use pillarbox::{enqueue::postgres_channel, table::Tables};
use sqlx::Row;

use super::{
    Tx,
    columns::{self, Columns, misfit},
    script::Script,
};
use crate::{
    layout::{Field, Layout, Source},
    store::{
        StoreError, StoreErrorKind,
        postgres::connection::{Connection, arguments, statement},
    },
};

/// What the catalogue says about the adopted table.
pub(super) struct Found {
    /// With its schema, quoted.
    adopted: String,
    /// The names of the outbox's tables, with their schema if it is simple.
    tables: Tables,
    /// The search paths of the functions: see [`Script`].
    path: String,
    write_path: String,
    columns: Columns,
    pub(super) has_trigger: bool,
}

impl Found {
    pub(super) fn script<'a>(&'a self, layout: &'a Layout, tables: &Tables) -> Script<'a> {
        Script {
            layout,
            tables: self.tables.clone(),
            channel: postgres_channel(tables),
            columns: &self.columns,
            adopted: self.adopted.clone(),
            path: self.path.clone(),
            write_path: self.write_path.clone(),
        }
    }
}

/// Looks at the table, and checks that the layout fits it.
pub(super) async fn find(connection: &Connection, tx: &mut Tx, layout: &Layout) -> Result<Found, StoreError> {
    let tables = connection.tables();
    let name = quoted(layout)?;
    let Some(Source::Column(id)) = layout.fields.get(&Field::Id) else {
        return Err(misfit("`fields.id` must be a column"));
    };
    let sql = statement(tables, include_str!("../sql/adopt/table.sql"));
    let arguments = arguments!(&name, id, trigger_name(tables))?;
    let rows = connection.rows_in(tx, &sql, arguments).await?;
    let Some(row) = rows.first() else {
        return Err(no_table(layout));
    };
    let read = || -> Result<(bool, String, String, bool, bool), sqlx::Error> {
        Ok((
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            row.try_get(3)?,
            row.try_get(4)?,
        ))
    };
    let (is_table, schema, own_schema, is_unique, has_trigger) = read().map_err(|e| connection.explain(e))?;
    if !is_table {
        return Err(misfit(format!("{} is not a table", layout.table)));
    }
    let bare = name.rsplit('.').next().unwrap_or(&name);
    let adopted = format!("{schema}.{bare}");
    let sql = statement(tables, include_str!("../sql/adopt/columns.sql"));
    let rows = connection.rows_in(tx, &sql, arguments!(&adopted)?).await?;
    let read =
        |row: &sqlx::postgres::PgRow| -> Result<(String, String, String, Option<String>), sqlx::Error> {
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))
        };
    let found: Result<Vec<_>, sqlx::Error> = rows.iter().map(read).collect();
    // Functions of another owner must not find tables or functions of others.
    let name = tables.name();
    let qualified = match name.contains('.') {
        true => Some(tables.clone()),
        false => Tables::new(&format!("{own_schema}.{name}"), None).ok(),
    };
    let path = match &qualified {
        Some(_) => "pg_catalog, pg_temp".to_owned(),
        None => format!("pg_catalog, {}, pg_temp", columns::column(&own_schema)?),
    };
    let write_path = format!("pg_catalog, {schema}, {}, pg_temp", columns::column(&own_schema)?);
    let own = qualified.unwrap_or_else(|| tables.clone());
    let columns = Columns::new(&layout.table, &own, found.map_err(|e| connection.explain(e))?);
    columns.check(layout)?;
    if !is_unique {
        return Err(misfit(format!(
            "the column `{id}` of {} has no unique index of its own, so an event could not be told from another: create one, \
             or name the column with the id in `outbox.layout`",
            layout.table
        )));
    }
    Ok(Found {
        adopted,
        tables: own,
        path,
        write_path,
        columns,
        has_trigger,
    })
}

/// How far the adoption is.
pub(super) struct State {
    /// Whether the trigger fires. `None`: there is none.
    pub(super) fires: Option<bool>,
    /// Earlier rows are still to be copied.
    pub(super) is_copying: bool,
    /// Which of them were asked for.
    pub(super) note: Option<String>,
}

impl State {
    fn read(row: &sqlx::postgres::PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            fires: row.try_get(0)?,
            is_copying: row.try_get(1)?,
            note: row.try_get(2)?,
        })
    }
}

pub(super) async fn state(
    connection: &Connection,
    tx: &mut Tx,
    layout: &Layout,
) -> Result<State, StoreError> {
    let tables = connection.tables();
    let sql = statement(tables, include_str!("../sql/adopt/state.sql"));
    let arguments = arguments!(quoted(layout)?, trigger_name(tables))?;
    let rows = connection.rows_in(tx, &sql, arguments).await?;
    let row = rows.first().ok_or_else(|| no_table(layout))?;
    State::read(row).map_err(|e| connection.explain(e))
}

/// Whether a relay may start: the trigger is there and fires, and all earlier rows were copied.
pub(in crate::store::postgres) async fn check(
    connection: &Connection,
    layout: &Layout,
) -> Result<(), StoreError> {
    let tables = connection.tables();
    let sql = statement(tables, include_str!("../sql/adopt/state.sql"));
    let arguments = arguments!(quoted(layout)?, trigger_name(tables))?;
    let rows = connection.rows(&sql, arguments).await?;
    let Some(row) = rows.first() else {
        return Err(no_table(layout));
    };
    let State {
        fires, is_copying, ..
    } = State::read(row).map_err(|e| connection.explain(e))?;
    match fires {
        None => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!(
                "the table {} is not adopted: run `pillarbox adopt --apply`",
                layout.table
            ),
        )),
        Some(false) => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!(
                "the trigger {} on {} is disabled, so new rows are not delivered: enable it with `alter table … enable trigger`",
                trigger_name(tables),
                layout.table
            ),
        )),
        Some(true) if is_copying => Err(StoreError::new(
            StoreErrorKind::NotMigrated,
            format!(
                "the adoption of {} was interrupted: run `pillarbox adopt --apply` again",
                layout.table
            ),
        )),
        Some(true) => Ok(()),
    }
}

/// The adopted table, quoted.
pub(super) fn quoted(layout: &Layout) -> Result<String, StoreError> {
    let tables = Tables::new(&layout.table, None).map_err(|error| misfit(error.to_string()))?;
    Ok(tables.events())
}

/// The name of the trigger on the adopted table, as the catalogue has it.
pub(super) fn trigger_name(tables: &Tables) -> String {
    tables.index("capture").replace('"', "")
}

pub(super) fn no_table(layout: &Layout) -> StoreError {
    misfit(format!(
        "there is no table {}: check `outbox.database.table_name`, the schema and the rights of this user",
        layout.table
    ))
}

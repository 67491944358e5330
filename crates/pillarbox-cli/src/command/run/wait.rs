//! Waits for a database that is away, and says so.

use std::time::Duration;

use anyhow::{Result, anyhow};
use pillarbox_relay::{
    connect::OpenStore,
    store::{StoreError, StoreErrorKind},
};

use crate::{
    config::{self, Settings},
    output::{Context, tell},
};

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

/// Returns when the outbox is available. It waits for a database that is away. With `migrate` it creates
/// missing tables.
pub(super) async fn for_store(
    open: &OpenStore,
    settings: &Settings,
    migrate: bool,
    context: &Context,
) -> Result<()> {
    let address = config::address(&settings.database.url);
    let mut interval = FIRST;
    let mut away = false;
    loop {
        let found = match open.store.check().await {
            Err(error) if error.kind == StoreErrorKind::NotMigrated && migrate => {
                migrated(open, context).await
            }
            found => found,
        };
        match found {
            Ok(()) => {
                if away {
                    tell(&format!("The database {address} is back."));
                }
                return Ok(());
            }
            Err(error) if error.kind == StoreErrorKind::Away => {
                away = true;
                tell(&format!(
                    "Waiting for the database {address}: {}. Retrying in {:.1} s.",
                    error.chain(),
                    interval.as_secs_f64()
                ));
                tokio::time::sleep(interval).await;
                interval = (interval * 2).min(LONGEST);
            }
            Err(error) if error.kind == StoreErrorKind::NotMigrated => {
                return Err(anyhow!(
                    "{}. (`pillarbox run --migrate` does it at the start.)",
                    mention_migrate(&error.to_string())
                ));
            }
            Err(error) => return Err(anyhow!(error.chain())),
        }
    }
}

async fn migrated(open: &OpenStore, context: &Context) -> Result<(), StoreError> {
    for line in open.admin.migrate().await? {
        context.say(&line);
    }
    for line in open.admin.missing().await? {
        tell(&format!("warning: {line}."));
    }
    Ok(())
}

/// The store's error, with advice if it has none.
fn mention_migrate(text: &str) -> String {
    if text.contains("pillarbox migrate") {
        text.trim_end_matches('.').to_owned()
    } else {
        format!("{text}: run `pillarbox migrate` on this database first")
    }
}

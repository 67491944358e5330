//! The checks of a relay, made ready before it starts.

use std::sync::Arc;

use anyhow::{Result, bail};
use pillarbox_relay::{check::Checks, connect::OpenStore};

use crate::{
    config::Settings,
    output::{Context, store_error},
};

/// `None` when nothing is checked. A schema that can't be used is an error here; later it is only told.
pub(crate) fn open(settings: &Settings, open: &OpenStore) -> Result<Option<Arc<Checks>>> {
    let options = &settings.checks.options;
    if options.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Checks::new(options, Some(open.versions.clone()))?)))
}

/// The check of aggregates' versions must not read the whole table for each aggregate.
pub(crate) async fn index(
    settings: &Settings,
    open: &OpenStore,
    migrate: bool,
    context: &Context,
) -> Result<()> {
    if migrate && settings.unique_versions {
        for line in open.versions.make_unique_index().await.map_err(store_error)? {
            context.say(&line);
        }
    }
    if settings.checks.options.aggregate_versions.is_none() {
        return Ok(());
    }
    if migrate {
        for line in open.versions.make_index().await.map_err(store_error)? {
            context.say(&line);
        }
    }
    if !open.versions.has_index().await.map_err(store_error)? {
        bail!(
            "`outbox.validation.aggregate_versions` needs an index that is not there: run `pillarbox migrate` with this configuration"
        );
    }
    Ok(())
}

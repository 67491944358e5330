//! Prepares the checks of a relay before it starts.

use std::sync::Arc;

use anyhow::{Result, bail};
use pillarbox_relay::{
    check::{Checks, versions::VersionIndex},
    connect::OpenStore,
};

use crate::{
    config::Settings,
    output::{Context, store_error},
};

/// `None` if nothing is checked. A schema that can't be used is an error at the start; later it is only
/// logged.
pub(crate) fn open(settings: &Settings, open: &OpenStore) -> Result<Option<Arc<Checks>>> {
    let options = &settings.checks.options;
    if options.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Checks::new(options, open.versions.clone())?)))
}

/// Without this index, the check of aggregate versions would read the whole table for each aggregate.
pub(crate) async fn index(
    settings: &Settings,
    open: &OpenStore,
    migrate: bool,
    context: &Context,
) -> Result<()> {
    let checked = settings.checks.options.aggregate_versions.is_some();
    if !checked && !settings.unique_versions {
        return Ok(());
    }
    let versions = open.require_versions().map_err(store_error)?;
    if migrate {
        // The unique index serves the check, too.
        let index = match settings.unique_versions {
            true => VersionIndex::Unique,
            false => VersionIndex::Plain,
        };
        for line in versions.make_index(index).await.map_err(store_error)? {
            context.say(&line);
        }
    }
    if checked && !versions.has_index().await.map_err(store_error)? {
        bail!(
            "`outbox.validation.aggregate_versions` needs an index that does not exist: run `pillarbox migrate` with this configuration"
        );
    }
    Ok(())
}

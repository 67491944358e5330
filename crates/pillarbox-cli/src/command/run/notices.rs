//! Tells people of dead letters and troubles while the relay runs.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use pillarbox_relay::{
    connect::OpenStore,
    engine::progress::Progress,
    notice::{self, Channel, ChannelOptions, Notifier, NotifierHandle},
};

use crate::config::Settings;

/// How long a relay that stops waits for what it is telling. The next one tells the rest.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(3);

pub(super) fn channels(options: &[ChannelOptions]) -> Result<Vec<Arc<dyn Channel>>> {
    let channels = options.iter().map(notice::open).collect::<Result<_, _>>();
    channels.context("a way to tell people can't be used")
}

/// `None`: nobody is to be told.
pub(super) fn start(
    settings: &Settings,
    channels: Vec<Arc<dyn Channel>>,
    open: &OpenStore,
    progress: Arc<Progress>,
) -> Option<NotifierHandle> {
    if channels.is_empty() {
        return None;
    }
    let notifier = Notifier {
        dead_letters: open.dead_letters.clone(),
        notices: open.notices.clone(),
        channels,
        options: settings.notices.options.clone(),
        progress,
        relay: settings.relay.name.clone(),
        outbox: settings.database.tables.name().to_owned(),
    };
    Some(notifier.start())
}

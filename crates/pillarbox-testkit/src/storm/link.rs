//! A network link that has every fault of the proxy.

use std::{sync::Arc, time::Duration};

use rand::RngExt;

use super::Source;
use crate::proxy::{Fault, Proxy};

/// The name of a link in the report, and how often and how long it fails.
#[derive(Debug, Clone)]
pub struct LinkFaults {
    /// For example `link to the broker`.
    pub name: &'static str,
    /// Between two faults, in milliseconds.
    pub calm: std::ops::Range<u64>,
    /// A fault's length, in milliseconds.
    pub length: std::ops::Range<u64>,
}

/// Breaks the link again and again until the storm is over.
pub async fn break_link(proxy: Arc<Proxy>, faults: LinkFaults, mut source: Source) {
    while source.next(faults.calm.clone()).await {
        break_link_once(&proxy, &faults, &mut source).await;
    }
}

/// One fault, from its beginning to its end.
pub async fn break_link_once(proxy: &Proxy, faults: &LinkFaults, source: &mut Source) {
    let (word, fault) = choose(source);
    let lasting = source.begin(format!("{} {word}", faults.name));
    proxy.set(fault).await;
    source.last(faults.length.clone()).await;
    proxy.set(Fault::Pass).await;
    drop(lasting);
}

fn choose(source: &mut Source) -> (&'static str, Fault) {
    let rng = source.rng();
    match rng.random_range(0..7) {
        0 => ("refused", Fault::Refuse),
        1 => ("reset", Fault::Reset),
        2 => ("swallows", Fault::BlackHole),
        3 => (
            "delays",
            Fault::Delay(Duration::from_millis(rng.random_range(10..300))),
        ),
        4 => ("cut", Fault::CutAfter(rng.random_range(0..20_000))),
        5 => ("drops replies", Fault::DropReplies),
        _ => ("paused", Fault::Pause),
    }
}

//! A relay's life: wait for the store, hold lanes, work on them, hand them back.

use std::{sync::Arc, time::Duration};

use rand::{SeedableRng, rngs::StdRng};

use super::{
    Context, RelayError,
    destinations::Destinations,
    lanes::{Change, LaneLeases},
    publish::SinkSlot,
    tenure::{End, Outliving, Tenure},
    watch::Stall,
};
use crate::{
    sink::Sink,
    store::{RelayId, StoreError, StoreErrorKind},
};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How often to look for lanes while holding none.
const EMPTY_HANDED: Duration = Duration::from_millis(250);
/// So many stalls with nothing moved in between end the relay: whoever supervises it starts another.
const STALLS_MAX: u32 = 2;
/// How long handing the lanes back may take: without it they run out by themselves.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn live(
    context: Context,
    relay: RelayId,
    sinks: Vec<(Arc<str>, Arc<dyn Sink>)>,
) -> Result<(), RelayError> {
    let options = &context.options;
    let mut outliving = Outliving {
        slots: sinks
            .into_iter()
            .map(|(name, sink)| SinkSlot::new(name, sink, options.name.as_str().into()))
            .collect(),
        destinations: Destinations::default(),
        rng: StdRng::seed_from_u64(options.seed),
        reported: (Vec::new(), tokio::time::Instant::now()),
    };
    let mut leases = LaneLeases::new(context.store.clone(), relay, options.name.clone(), options.lease);
    let mut patience = Patience::default();
    let mut stalls = 0;

    while !context.stop.is_cancelled() {
        context.progress.tick();
        let gathered = tokio::time::timeout(options.stall_after, gather(&context, &mut leases)).await;
        let end = match gathered {
            Ok(Ok(Some(blocked))) => {
                context.store_is_up();
                context.progress.set_lanes(leases.held.len());
                Tenure::new(&context, &mut leases, &mut outliving, blocked)
                    .run()
                    .await
            }
            Ok(Ok(None)) => {
                context.pause(EMPTY_HANDED.min(leases.heartbeat_interval())).await;
                continue;
            }
            Ok(Err(error)) => End::Store(error),
            Err(_) => End::Stalled(Stall {
                waiting_for: "waiting for the database to lease lanes".into(),
                progressed: false,
            }),
        };
        let done = match end {
            End::Stop => break,
            End::Fatal(error) => {
                leave(&mut leases).await;
                return Err(error);
            }
            End::Stalled(Stall {
                waiting_for,
                progressed,
            }) => {
                stalls = if progressed { 1 } else { stalls + 1 };
                // What the old tenure sent may still be carried out: only lanes with new epochs keep it out.
                leases.forget();
                context.stalled(waiting_for, stalls)?;
                continue;
            }
            End::Regroup { surplus } => leases.hand_back(surplus).await,
            End::Store(error) => Err(error),
        };
        match done {
            Ok(()) => patience = Patience::default(),
            Err(error) => {
                // Which lanes are still ours is what the next heartbeat says.
                context.wait_for_store(error, &mut patience).await?;
            }
        }
    }
    leave(&mut leases).await;
    context.progress.set_lanes(0);
    Ok(())
}

/// Takes what lanes are to be had. `None`: there are none now. Else the keys of theirs that are blocked.
async fn gather(context: &Context, leases: &mut LaneLeases) -> Result<Option<Vec<(u8, u64)>>, StoreError> {
    // One that is on its way may have taken lanes.
    if leases.is_beating() {
        let beat = leases.beaten().await?;
        leases.absorb(beat);
    }
    context.store.check().await?;
    leases.start_beat();
    let beat = leases.beaten().await?;
    match leases.absorb(beat) {
        Change::Surplus(surplus) => leases.hand_back(surplus).await?,
        Change::Keep | Change::Gained | Change::Lost => leases.settle_in(),
    }
    if leases.held.is_empty() {
        return Ok(None);
    }
    Ok(Some(context.store.blocked_keys(&leases.held).await?))
}

async fn leave(leases: &mut LaneLeases) {
    match tokio::time::timeout(LEAVE_PATIENCE, leases.leave()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(
                why = error.chain(),
                "the lanes could not be handed back: they run out by themselves"
            );
        }
        Err(_) => tracing::warn!("the store does not answer: the lanes run out by themselves"),
    }
}

/// Grows while the store keeps failing.
pub(super) struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(RETRY_FIRST)
    }
}

impl Context {
    /// Waits before the store is tried again; says so. An error that waiting can't mend ends the relay.
    async fn wait_for_store(&self, error: StoreError, patience: &mut Patience) -> Result<(), RelayError> {
        match error.kind {
            StoreErrorKind::NotMigrated | StoreErrorKind::Misconfigured => {
                return Err(RelayError::Store(error));
            }
            StoreErrorKind::Fenced => {}
            StoreErrorKind::Away | StoreErrorKind::Refused => self.store_is_down(&error),
        }
        self.pause(patience.0).await;
        patience.0 = (patience.0 * 2).min(RETRY_MAX);
        Ok(())
    }

    /// Says what the relay waits for in vain. A new tenure may help; when it did not, a new process may.
    fn stalled(&self, waiting_for: String, stalls: u32) -> Result<(), RelayError> {
        self.progress.stalled_is(Some(&waiting_for));
        if stalls >= STALLS_MAX {
            return Err(RelayError::Stalled { waiting_for });
        }
        tracing::error!(waiting_for, "the relay does not get on: starting over");
        Ok(())
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}

//! A relay's life: wait for the store, lease lanes, work on them, release them.

use std::{sync::Arc, time::Duration};

use rand::{SeedableRng, rngs::StdRng};

use super::{
    Context, RelayError,
    destinations::Destinations,
    lanes::{Change, LaneLeases},
    sink_slot::SinkSlot,
    tenure::{End, Outliving, Tenure},
    watch::Stall,
};
use crate::{
    event::Lane,
    sink::Sink,
    store::{HeldLane, RelayId, StoreError, StoreErrorKind},
};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How often to look for lanes while the relay has none.
const NO_LANES_WAIT: Duration = Duration::from_millis(250);
/// This many stalls in a row without progress end the relay, so that a supervisor can start another one.
const STALLS_MAX: u32 = 2;
/// How long releasing the lanes may take. If it fails, their leases expire.
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
    let mut leases = LaneLeases::new(
        context.store.clone(),
        relay,
        options.name.clone(),
        options.lease,
        options.clock,
    );
    let mut patience = Patience::default();
    let mut stalls = 0;
    let mut lanes_before = Vec::new();

    while !context.stop.is_cancelled() {
        context.progress.tick(context.store.statements());
        let gathered = tokio::time::timeout(options.stall_after, gather(&context, &mut leases)).await;
        let end = match gathered {
            Ok(Ok(Some(blocked))) => {
                context.store_is_up();
                context.lanes_are(&leases.lanes, &mut lanes_before);
                Tenure::new(&context, &mut leases, &mut outliving, blocked)
                    .run()
                    .await
            }
            Ok(Ok(None)) => {
                context
                    .pause(NO_LANES_WAIT.min(leases.heartbeat_interval()))
                    .await;
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
                // The database may still execute what the old tenure sent. Only lanes with new epochs fence it.
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
                // The next heartbeat says which lanes this relay still has.
                context.wait_for_store(error, &mut patience).await?;
            }
        }
    }
    leave(&mut leases).await;
    context.progress.set_lanes(0);
    Ok(())
}

/// Acquires free lanes. Returns the blocked keys of all lanes that the relay holds, or `None` if it holds none.
async fn gather(context: &Context, leases: &mut LaneLeases) -> Result<Option<Vec<(u8, u64)>>, StoreError> {
    // A heartbeat that is still running may have taken lanes.
    if leases.is_beating() {
        let beat = leases.beaten().await?;
        leases.merge_beat(beat);
    }
    context.store.check().await?;
    leases.start_beat();
    let beat = leases.beaten().await?;
    match leases.merge_beat(beat) {
        Change::Surplus(surplus) => leases.hand_back(surplus).await?,
        Change::Keep | Change::Gained | Change::Lost => leases.adopt_gained(),
    }
    if leases.lanes.is_empty() {
        return Ok(None);
    }
    Ok(Some(context.store.blocked_keys(&leases.lanes).await?))
}

async fn leave(leases: &mut LaneLeases) {
    match tokio::time::timeout(LEAVE_PATIENCE, leases.leave()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(
                why = error.chain(),
                "could not release the lanes: their leases will expire"
            );
        }
        Err(_) => tracing::warn!("the database does not answer: the leases of the lanes will expire"),
    }
}

/// The wait before the next attempt. It grows while the store keeps failing.
pub(super) struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(RETRY_FIRST)
    }
}

impl Context {
    /// Logs the error and waits before the next attempt. Returns errors that waiting can't fix; they end the relay.
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

    /// Logs what the relay waits for. A new tenure may help. If it did not, a new process may.
    fn stalled(&self, waiting_for: String, stalls: u32) -> Result<(), RelayError> {
        self.progress.stalled_is(Some(&waiting_for));
        self.progress.recorded.stalls.inc();
        if stalls >= STALLS_MAX {
            return Err(RelayError::Stalled { waiting_for });
        }
        tracing::error!(waiting_for, "the relay makes no progress: starting over");
        Ok(())
    }

    /// Logs the lanes that are new.
    fn lanes_are(&self, lanes: &[HeldLane], before: &mut Vec<(Lane, i64)>) {
        let now: Vec<_> = lanes.iter().map(|lane| (lane.lane, lane.epoch)).collect();
        let taken = now.iter().filter(|lane| !before.contains(lane)).count();
        if taken > 0 {
            tracing::info!(taken, lanes = now.len(), "took over lanes");
            self.progress.recorded.lanes_taken.inc_by(taken as u64);
        }
        self.progress.set_lanes(now.len());
        *before = now;
    }

    async fn pause(&self, time: Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}

//! Sends the deliveries of one channel, and retries those that failed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Channel, ChannelError, Claim, Delivery, Notices, Options};

/// Added to the channel's timeout. After both, another relay may try.
const LEASE_MORE: Duration = Duration::from_secs(15);
/// The shortest wait before the next look for a due delivery.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// A channel and its state in this process.
pub(super) struct Line {
    pub(super) channel: Arc<dyn Channel>,
    /// Signals that there is something to deliver.
    pub(super) wake: Notify,
    /// The receiver wants no more notices. Reset by a restart.
    gone: AtomicBool,
}

impl Line {
    pub(super) fn new(channel: Arc<dyn Channel>) -> Self {
        Self {
            channel,
            wake: Notify::new(),
            gone: AtomicBool::new(false),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// The keys of the channels that still accept notices.
pub(super) fn open_channels(lines: &[Arc<Line>]) -> Vec<String> {
    let open = lines.iter().filter(|line| !line.is_gone());
    open.map(|line| line.channel.key().to_owned()).collect()
}

/// Runs until it is stopped, or until the receiver wants no more notices.
pub(super) async fn keep(line: Arc<Line>, notices: Notices, options: Options, stop: CancellationToken) {
    let lease = line.channel.timeout() + LEASE_MORE;
    while !stop.is_cancelled() && !line.is_gone() {
        let wait = match notices.claim(line.channel.key(), lease).await {
            Ok(Claim::One(delivery)) => {
                deliver(&line, &notices, &options, &delivery).await;
                continue;
            }
            Ok(Claim::Nothing { next }) => next.unwrap_or(options.look_every).max(WAIT_MIN),
            Err(error) => {
                tracing::debug!(why = error.chain(), "could not look for due notices");
                options.look_every
            }
        };
        tokio::select! {
            () = line.wake.notified() => {}
            () = tokio::time::sleep(wait.min(options.look_every)) => {}
            () = stop.cancelled() => {}
        }
    }
}

async fn deliver(line: &Line, notices: &Notices, options: &Options, delivery: &Delivery) {
    let channel = &*line.channel;
    // A channel enforces its own timeout. This one is for a channel that does not.
    let told = timeout(
        channel.timeout() + LEASE_MORE / 2,
        channel.tell(delivery.id, &delivery.body),
    );
    let result = told
        .await
        .unwrap_or_else(|_| Err(ChannelError::Retry("it did not answer".into())));
    let (name, fingerprint) = (channel.name(), &*delivery.fingerprint);
    let written = match result {
        Ok(()) => notices.delivered(delivery).await,
        Err(ChannelError::Gone(why)) => {
            line.gone.store(true, Ordering::Relaxed);
            tracing::warn!(
                channel = name,
                why,
                "this channel gets no more notices until the relay is started again"
            );
            notices.failed(delivery, None, &why).await
        }
        Err(ChannelError::Retry(why)) => {
            let tried = usize::try_from(delivery.attempts).unwrap_or(usize::MAX).max(1);
            let retry_in = options.retry_delays.get(tried - 1).copied();
            match retry_in {
                Some(wait) => {
                    let again_in_seconds = wait.as_secs_f64();
                    tracing::warn!(
                        channel = name,
                        fingerprint,
                        why,
                        again_in_seconds,
                        "could not deliver a notice"
                    )
                }
                None => tracing::error!(
                    channel = name,
                    fingerprint,
                    why,
                    tried,
                    "gave up delivering a notice"
                ),
            }
            notices.failed(delivery, retry_in, &why).await
        }
    };
    if let Err(error) = written {
        // The lease will end, and the notice is sent once more under the same id.
        tracing::debug!(why = error.chain(), "could not record the result of a delivery");
    }
}

//! Carries the deliveries of one channel out, and tries those that failed again.

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

/// Beyond the channel's own limit, until another relay may try.
const LEASE_MORE: Duration = Duration::from_secs(15);
/// What is due in less is looked for after this.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// A channel and its state in this process.
pub(super) struct Line {
    pub(super) channel: Arc<dyn Channel>,
    /// There is something to deliver.
    pub(super) wake: Notify,
    /// The other side wants no more; until the next start.
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

/// The keys of the channels that still take notices.
pub(super) fn open_channels(lines: &[Arc<Line>]) -> Vec<String> {
    let open = lines.iter().filter(|line| !line.is_gone());
    open.map(|line| line.channel.key().to_owned()).collect()
}

/// Goes on until it is stopped, or the other side wants no more.
pub(super) async fn keep(
    line: Arc<Line>,
    notices: Arc<dyn Notices>,
    options: Options,
    stop: CancellationToken,
) {
    let lease = line.channel.timeout() + LEASE_MORE;
    while !stop.is_cancelled() && !line.is_gone() {
        let wait = match notices.claim(line.channel.key(), lease).await {
            Ok(Claim::One(delivery)) => {
                deliver(&line, &*notices, &options, &delivery).await;
                continue;
            }
            Ok(Claim::Nothing { next }) => next.unwrap_or(options.look_every).max(WAIT_MIN),
            Err(error) => {
                tracing::debug!(why = error.chain(), "notices can't be looked for");
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

async fn deliver(line: &Line, notices: &dyn Notices, options: &Options, delivery: &Delivery) {
    let channel = &*line.channel;
    // The channel keeps its limit itself; this is for one that does not.
    let told = timeout(
        channel.timeout() + LEASE_MORE / 2,
        channel.tell(delivery.id, &delivery.body),
    );
    let result = told
        .await
        .unwrap_or_else(|_| Err(ChannelError::Retry("it gave no answer".into())));
    let (name, fingerprint) = (channel.name(), &*delivery.fingerprint);
    let written = match result {
        Ok(()) => notices.delivered(channel.key(), delivery).await,
        Err(ChannelError::Gone(why)) => {
            line.gone.store(true, Ordering::Relaxed);
            tracing::warn!(
                channel = name,
                why,
                "this channel gets no more notices until the relay is started again"
            );
            notices.failed(channel.key(), delivery, None, &why).await
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
                        "a notice was not taken"
                    )
                }
                None => tracing::error!(channel = name, fingerprint, why, tried, "a notice was given up"),
            }
            notices.failed(channel.key(), delivery, retry_in, &why).await
        }
    };
    if let Err(error) = written {
        // Its lease ends, and it is told once more under the same id.
        tracing::debug!(
            why = error.chain(),
            "what became of a notice could not be written down"
        );
    }
}

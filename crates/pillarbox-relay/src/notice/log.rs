//! The relay's own log.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{Channel, ChannelError, Kind, Message};

pub struct LogChannel {
    /// Deaths are errors in the log, and not only warnings.
    pub alert: bool,
}

#[async_trait]
impl Channel for LogChannel {
    fn key(&self) -> &str {
        "log"
    }

    fn name(&self) -> String {
        "log".into()
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn tell(&self, _: Uuid, body: &str) -> Result<(), ChannelError> {
        let Ok(message) = serde_json::from_str::<Message>(body) else {
            // Written by a relay of another version.
            tracing::warn!(notice = body, "a notice about dead letters");
            return Ok(());
        };
        let about = message.data;
        let (fingerprint, look) = (&*about.fingerprint, &*about.look);
        let (reason, error) = (about.reason.as_str(), &*about.error);
        let (count, new) = (about.count, about.new);
        match message.kind {
            Kind::Opened if self.alert => {
                tracing::error!(fingerprint, count, reason, error, look, "events are dead")
            }
            Kind::Opened => tracing::warn!(fingerprint, count, reason, error, look, "events are dead"),
            Kind::More if self.alert => {
                tracing::error!(
                    fingerprint,
                    count,
                    new,
                    reason,
                    error,
                    look,
                    "more events are dead"
                )
            }
            Kind::More => {
                tracing::warn!(
                    fingerprint,
                    count,
                    new,
                    reason,
                    error,
                    look,
                    "more events are dead"
                )
            }
            Kind::Recovered => {
                let replayed = about.replayed.unwrap_or_default();
                let discarded = about.discarded.unwrap_or_default();
                tracing::info!(
                    fingerprint,
                    replayed,
                    discarded,
                    reason,
                    error,
                    "no event is dead of this any more"
                );
            }
            Kind::Test => tracing::warn!("a test of the notices about dead letters: nothing died"),
        }
        Ok(())
    }
}

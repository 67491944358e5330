//! The relay's own log.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use serde::de::DeserializeOwned;
use tracing::field::display;

use crate::store::TroubleKind;

use super::{About, AboutTrouble, Channel, ChannelError, Kind, Message};

pub struct LogChannel {
    /// Log deaths as errors instead of warnings.
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
        match (parsed::<About>(body), parsed::<AboutTrouble>(body)) {
            (Some(message), _) => self.about_letters(message),
            (_, Some(message)) => self.about_trouble(message),
            // Written by a relay of another version.
            (None, None) => tracing::warn!(notice = body, "a notice"),
        }
        Ok(())
    }
}

fn parsed<A: DeserializeOwned>(body: &str) -> Option<Message<A>> {
    serde_json::from_str(body).ok()
}

impl LogChannel {
    fn about_letters(
        &self,
        Message {
            kind, data: about, ..
        }: Message,
    ) {
        let (fingerprint, look) = (&*about.fingerprint, &*about.look);
        let (reason, error) = (about.reason.as_str(), &*about.error);
        let (count, new) = (about.count, about.new);
        let sample = about.sample.as_ref();
        let event_id = sample.map(|sample| display(&sample.event_id));
        let event_type = sample.map(|sample| &*sample.event_type);
        let aggregate_type = sample.and_then(|sample| sample.aggregate_type.as_deref());
        let aggregate_id = sample.and_then(|sample| sample.aggregate_id.as_deref());
        // Macros of `tracing` need the level and the message as constants.
        macro_rules! died {
            ($level:ident, $message:literal $(, $more:ident)?) => {
                tracing::$level!(
                    fingerprint,
                    count,
                    $($more,)?
                    reason,
                    error,
                    event_id,
                    event_type,
                    aggregate_type,
                    aggregate_id,
                    look,
                    $message
                )
            };
        }
        match kind {
            Kind::Opened if self.alert => died!(error, "events are dead"),
            Kind::Opened => died!(warn, "events are dead"),
            Kind::More if self.alert => died!(error, "more events are dead", new),
            Kind::More => died!(warn, "more events are dead", new),
            Kind::Recovered => {
                let replayed = about.replayed.unwrap_or_default();
                let discarded = about.discarded.unwrap_or_default();
                tracing::info!(
                    fingerprint,
                    replayed,
                    discarded,
                    reason,
                    error,
                    event_id,
                    event_type,
                    aggregate_type,
                    aggregate_id,
                    "no dead letter of this cause is open any more"
                );
            }
            Kind::Test => tracing::warn!("this is a test notice: no event died"),
            Kind::TroubleOpened | Kind::TroubleRecovered => {}
        }
    }

    fn about_trouble(&self, Message { kind, data, .. }: Message<AboutTrouble>) {
        let (trouble, what, why) = (data.trouble.as_str(), &*data.what, &*data.why);
        let (since, relays, look) = (data.since.to_string(), data.relays, &*data.look);
        match kind {
            Kind::TroubleRecovered => {
                tracing::info!(trouble, what, since, "the trouble is over");
            }
            _ if data.trouble == TroubleKind::Loss => {
                tracing::error!(
                    what,
                    why,
                    events = data.events,
                    since,
                    relays,
                    look,
                    "delivered events are gone from a sink"
                );
            }
            _ if self.alert => {
                tracing::error!(trouble, what, why, since, relays, look, "relays can't deliver");
            }
            _ => tracing::warn!(trouble, what, why, since, relays, look, "relays can't deliver"),
        }
    }
}

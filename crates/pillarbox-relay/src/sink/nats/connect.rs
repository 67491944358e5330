//! The connection and its state.

mod address;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use async_nats::{Client, ClientError, ConnectOptions, Event, Server, ServerError};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

pub(super) use self::address::Address;
use super::{
    outcome::{Denied, denied, misconfigured},
    publish::{Answers, gather},
};
use crate::{
    sink::{SinkError, SinkErrorKind},
    tls::is_about_tls,
};

/// The longest wait between two attempts to connect.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(1);

pub(super) struct Connection {
    pub(super) client: Client,
    /// Acknowledgements are sent to `{inbox}.{batch}-{index}`.
    pub(super) inbox: String,
    pub(super) shared: Arc<Shared>,
    shown: String,
    gatherer: AbortOnDropHandle<()>,
}

/// State that the client's tasks and the publishing tasks share.
pub(super) struct Shared {
    pub(super) link: watch::Sender<Link>,
    pub(super) next_batch: AtomicU64,
    batches: Mutex<HashMap<u64, Arc<Answers>>>,
}

/// The state of the connection.
#[derive(Clone, Default)]
pub(super) struct Link {
    pub(super) connected: bool,
    /// How often the connection was lost. Events in flight on an earlier connection are in doubt.
    pub(super) losses: u64,
    /// Why it can't connect: the kind of failure, in the client's words.
    pub(super) problem: Option<String>,
    /// The errors of the servers that it tried.
    details: Vec<String>,
    /// How many refusals there were on this connection, and the latest ones.
    pub(super) refusals: u64,
    pub(super) denied: Vec<(u64, Denied)>,
}

impl Link {
    /// Whether acknowledgements can't arrive, because the user may not subscribe to the inbox.
    pub(super) fn cannot_receive_acks(&self, inbox: &str) -> bool {
        let ours = |denied: &Denied| matches!(denied, Denied::Subscribe(to) if to.starts_with(inbox));
        self.denied.iter().any(|(_, denied)| ours(denied))
    }
}

impl Connection {
    /// Starts connecting, and does not wait for it.
    pub(super) async fn start(address: &Address, timeout: Duration) -> Result<Self, SinkError> {
        let shared = Arc::new(Shared {
            link: watch::Sender::new(Link::default()),
            next_batch: AtomicU64::new(0),
            batches: Mutex::default(),
        });
        let (listener, onlooker) = (shared.clone(), shared.clone());
        let options = address
            .authenticate(ConnectOptions::new())?
            .name("pillarbox")
            .retry_on_initial_connect()
            .max_reconnects(None)
            .connection_timeout(timeout)
            .request_timeout(Some(timeout))
            .reconnect_delay_callback(reconnect_delay)
            .reconnect_to_server_callback(move |servers, _| {
                onlooker.tried(&servers);
                std::future::ready(None)
            })
            .event_callback(move |event| {
                let shared = listener.clone();
                async move { shared.heard(event) }
            });
        let client = options
            .connect(&address.servers[..])
            .await
            .map_err(|error| misconfigured(format!("{}: {error}", address.shown)))?;
        let inbox = client.new_inbox();
        let acknowledgements = client
            .subscribe(format!("{inbox}.*"))
            .await
            .map_err(|error| misconfigured(format!("{}: {error}", address.shown)))?;
        let gatherer = tokio::spawn(gather(acknowledgements, inbox.len() + 1, shared.clone()));
        Ok(Self {
            client,
            inbox,
            shared,
            shown: address.shown.clone(),
            gatherer: AbortOnDropHandle::new(gatherer),
        })
    }

    /// Waits for a connection. The error says why there is none.
    pub(super) async fn ready(&self, timeout: Duration) -> Result<(), SinkError> {
        let mut link = self.shared.link.subscribe();
        let settled =
            |link: &Link| link.connected || link.problem.as_deref().is_some_and(credentials_refused);
        let _ = tokio::time::timeout(timeout, link.wait_for(settled)).await;
        let link = link.borrow();
        if link.connected {
            Ok(())
        } else {
            Err(self.away(&link))
        }
    }

    pub(super) fn away(&self, link: &Link) -> SinkError {
        match &link.problem {
            Some(problem) => {
                let problem = connect_problem(problem, &link.details);
                SinkError::new(problem.kind, format!("{}: {}", self.shown, problem.message))
            }
            None => SinkError::new(
                SinkErrorKind::Unreachable,
                format!("no connection to {}", self.shown),
            ),
        }
    }

    /// Whether the client has ended. Then nobody passes on acknowledgements any more.
    pub(super) fn is_over(&self) -> bool {
        self.gatherer.is_finished()
    }

    pub(super) fn lost(&self) -> SinkError {
        SinkError::new(
            SinkErrorKind::Unreachable,
            format!(
                "the connection to {} broke before the acknowledgement arrived",
                self.shown
            ),
        )
    }

    pub(super) fn payload_bytes_max(&self) -> Option<usize> {
        self.shared
            .link
            .borrow()
            .connected
            .then(|| self.client.max_payload())
    }
}

impl Shared {
    pub(super) fn batches(&self) -> MutexGuard<'_, HashMap<u64, Arc<Answers>>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, event: Event) {
        match event {
            Event::Connected => self.link.send_modify(|link| {
                link.connected = true;
                link.problem = None;
                link.details.clear();
                link.denied.clear();
            }),
            Event::Disconnected | Event::Closed => self.link.send_modify(|link| {
                link.connected = false;
                link.losses += 1;
            }),
            Event::ClientError(ClientError::Other(what)) => self.link.send_modify(|link| {
                link.problem = Some(what);
            }),
            Event::ServerError(ServerError::AuthorizationViolation) => self.link.send_modify(|link| {
                link.problem = Some("authorization violation".into());
            }),
            Event::ServerError(ServerError::Other(what)) => {
                if let Some(denied) = denied(&what) {
                    self.refused(denied);
                } else {
                    tracing::warn!(error = what, "NATS says");
                }
            }
            Event::SlowConsumer(_) => {
                tracing::warn!(
                    "acknowledgements from NATS arrived faster than they were read; some are in doubt"
                );
            }
            other => tracing::debug!("NATS: {other}"),
        }
    }

    /// The client's events contain only the kind of a failed connection. Before the next attempt, the client shows the
    /// last error of each server.
    fn tried(&self, servers: &[Server]) {
        let details: Vec<String> = servers
            .iter()
            .filter_map(|server| server.last_error.clone())
            .collect();
        self.link.send_modify(|link| link.details = details);
    }

    fn refused(&self, denied: Denied) {
        /// If more subjects than this are refused at once, later attempts find the others.
        const KEPT: usize = 64;
        self.link.send_modify(|link| {
            link.refusals += 1;
            link.denied.retain(|(_, known)| *known != denied);
            if link.denied.len() == KEPT {
                link.denied.remove(0);
            }
            link.denied.push((link.refusals, denied));
        });
    }
}

fn credentials_refused(kind: &str) -> bool {
    kind == "authorization violation" || kind == "failed signing nonce"
}

/// `kind` is the client's name for the latest failure. Each detail begins with the name of its own kind.
fn connect_problem(kind: &str, details: &[String]) -> SinkError {
    if credentials_refused(kind) {
        return misconfigured(
            "the server refuses these credentials. Check user, password, token or the creds file",
        );
    }
    let what = details
        .iter()
        .find(|detail| detail.starts_with(kind))
        .map_or(kind, String::as_str);
    // The other side can fix all of this while the relay waits, even an expired certificate.
    let message = if is_about_tls(what) {
        format!(
            "no TLS connection ({what}). Check that the server uses TLS, that its certificate names this host and is \
             trusted (?ca=FILE), and whether it wants one of ours (?cert=FILE&key=FILE)"
        )
    } else {
        format!("can't connect ({what})")
    };
    SinkError::new(SinkErrorKind::Unreachable, message)
}

fn reconnect_delay(attempts: usize) -> Duration {
    match u32::try_from(attempts) {
        Ok(0 | 1) => Duration::ZERO,
        Ok(n) if n < 10 => Duration::from_millis(1 << n),
        _ => RECONNECT_DELAY_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_connect_go_on_at_least_every_second() {
        assert_eq!(reconnect_delay(1), Duration::ZERO);
        assert!((2..10_000).all(|n| reconnect_delay(n) <= RECONNECT_DELAY_MAX));
    }

    #[test]
    fn refused_credentials_are_a_matter_of_configuration_and_a_refused_connection_is_not() {
        let details = ["IO error: Connection refused (os error 111)".to_owned()];
        let refused = connect_problem("authorization violation", &details);
        assert_eq!(refused.kind, SinkErrorKind::Misconfigured);
        let unreachable = connect_problem("IO error", &details);
        assert_eq!(unreachable.kind, SinkErrorKind::Unreachable);
        assert!(
            unreachable.message.contains("Connection refused"),
            "{unreachable}"
        );
        let dns = connect_problem("DNS error", &details);
        assert_eq!(
            dns.message, "can't connect (DNS error)",
            "an older failure is not the reason"
        );
    }
}

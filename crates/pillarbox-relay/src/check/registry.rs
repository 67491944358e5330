//! Schemas from a registry with Confluent's HTTP API: `GET /subjects/{subject}/versions/{version}`.
//!
//! A version of a subject never changes, so it is requested only once. While the registry is away, it is asked now and
//! then instead of once for each event. This happens in the background, because events that do not need the registry
//! must not wait for it.

mod address;
mod answer;
mod away;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use pillarbox::Event;
use reqwest::Client;
use thiserror::Error;
use tokio::time::Instant;
use url::Url;

pub use self::address::parse;
use self::away::Away;
use super::{recent::Recent, schema::Schema, schemas::Lookup};
use crate::{
    event::Seq,
    http_client::{self, HttpClientError},
    tls::TlsFiles,
};

/// How many schemas are kept.
const SCHEMAS_MAX: usize = 2_000;
/// How long the answers "there is none" and "it can't be used" are valid. They stay valid longer while the registry is
/// away.
const NOT_FOUND_HOLDS: Duration = Duration::from_secs(30);
/// While the registry is away, a request may take this many times the timeout, because nothing waits for it.
const PATIENCE: u32 = 5;
/// Requests at the same time.
const ASKED_AT_ONCE: usize = 8;
/// So that the timeout of a request ends first. It records that the registry is away.
const GRACE: Duration = Duration::from_millis(250);
/// Where its files are named, for errors.
const NAMED: &str = "the settings of the schema registry";

#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("the schema registry's address can't be used: {0}")]
    Address(String),
    #[error(transparent)]
    Client(#[from] HttpClientError),
}

/// What to do with events whose schema is not known while the registry is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenAway {
    /// They wait, and their keys wait with them.
    #[default]
    Wait,
    Pass,
    Reject,
}

#[derive(Clone)]
pub struct RegistryOptions {
    /// `http://user:password@host:port/prefix`. It is a secret.
    pub url: String,
    /// May contain `{event_type}`, `{topic}` and `{aggregate_type}`.
    pub subject: String,
    pub when_away: WhenAway,
    /// How long events wait for an answer. After that, the registry counts as away.
    pub timeout: Duration,
    /// For an address with https.
    pub tls: TlsFiles,
}

impl RegistryOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            subject: "{event_type}".into(),
            when_away: WhenAway::default(),
            timeout: Duration::from_secs(2),
            tls: TlsFiles::default(),
        }
    }
}

impl fmt::Debug for RegistryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryOptions")
            .field("subject", &self.subject)
            .field("when_away", &self.when_away)
            .finish_non_exhaustive()
    }
}

type Key = (String, i32);

pub(super) struct Registry {
    client: Client,
    timeout: Duration,
    base: Url,
    user: Option<(String, String)>,
    subject: String,
    when_away: WhenAway,
    known: Mutex<Recent<Key, Known>>,
    /// Only one task asks at a time. The others find its answers in `known`.
    asking: tokio::sync::Mutex<()>,
    away: Mutex<Option<Away>>,
}

#[derive(Clone)]
enum Known {
    Schema(Arc<Schema>),
    Missing { until: Instant },
    Broken { problem: Arc<str>, until: Instant },
}

/// What the registry says about the schemas of some events.
#[derive(Default)]
pub(super) struct RegistryView {
    known: HashMap<Key, Known>,
    /// Why there is no answer for these.
    away: HashMap<Key, String>,
}

impl Registry {
    pub(super) fn open(options: &RegistryOptions) -> Result<Self, RegistryError> {
        let mut base = parse(&options.url)?;
        let user = (!base.username().is_empty()).then(|| {
            let text = |text: &str| address::percent_decoded(text);
            (text(base.username()), text(base.password().unwrap_or_default()))
        });
        let _ = base.set_username("");
        let _ = base.set_password(None);
        Ok(Self {
            client: http_client::client_with(options.timeout * PATIENCE, &options.tls, NAMED)?,
            timeout: options.timeout,
            base,
            user,
            subject: options.subject.clone(),
            when_away: options.when_away,
            known: Mutex::new(Recent::new(SCHEMAS_MAX)),
            asking: tokio::sync::Mutex::new(()),
            away: Mutex::new(None),
        })
    }

    pub(super) fn when_away(&self) -> WhenAway {
        self.when_away
    }

    pub(super) fn subject(&self, event: &Event) -> String {
        self.subject
            .replace("{event_type}", &event.event_type)
            .replace("{topic}", &event.topic)
            .replace("{aggregate_type}", &event.aggregate_type)
    }

    /// The schemas of these events: the known ones, and those that the registry returns in time.
    pub(super) async fn view(self: &Arc<Self>, events: &[(Seq, &Event)]) -> RegistryView {
        let mut view = RegistryView::default();
        let mut unknown = Vec::new();
        for (_, event) in events {
            let key = (self.subject(event), event.schema_version);
            if view.known.contains_key(&key) || unknown.contains(&key) {
                continue;
            }
            match self.recall(&key) {
                Some(known) => {
                    view.known.insert(key, known);
                }
                None => unknown.push(key),
            }
        }
        if let Some(last) = unknown.last() {
            view.away = match self.down_for(last) {
                Some(why) => unknown.iter().map(|key| (key.clone(), why.clone())).collect(),
                None => self.learn_in_time(unknown.clone()).await,
            };
            // An expired answer stays valid if there is no newer one.
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            for key in unknown {
                if let Some(found) = known.get(&key).cloned() {
                    view.known.insert(key, found);
                }
            }
        }
        view
    }

    fn recall(&self, key: &Key) -> Option<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(key)?;
        match found {
            Known::Missing { until } | Known::Broken { until, .. } if *until <= Instant::now() => None,
            found => Some(found.clone()),
        }
    }

    /// The waits for many slow answers must not add up. Answers that come too late are used by a later check.
    async fn learn_in_time(self: &Arc<Self>, keys: Vec<Key>) -> HashMap<Key, String> {
        let registry = self.clone();
        let learning = tokio::spawn(async move {
            let _turn = registry.asking.lock().await;
            let asked = keys.into_iter().map(|key| registry.learn(key));
            let failed = futures::stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
            failed.filter_map(std::future::ready).collect().await
        });
        match tokio::time::timeout(self.timeout + GRACE, learning).await {
            Ok(Ok(away)) => away,
            Ok(Err(_)) | Err(_) => HashMap::new(),
        }
    }

    /// Asks for one schema, unless another task has done so. Returns the reason if there is no answer.
    async fn learn(self: &Arc<Self>, key: Key) -> Option<(Key, String)> {
        if self.recall(&key).is_some() {
            return None;
        }
        if let Some(why) = self.down_for(&key) {
            return Some((key, why));
        }
        let why = match tokio::time::timeout(self.timeout, self.ask(&key)).await {
            Ok(Ok(known)) => {
                self.note(&key, &known);
                return None;
            }
            Ok(Err(why)) => self.is_away(&key, &why),
            Err(_) => self.is_away(&key, "it did not answer in time"),
        };
        Some((key, why))
    }

    fn note(&self, key: &Key, known: &Known) {
        self.is_back();
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), known.clone());
    }

    async fn ask(&self, (subject, version): &Key) -> Result<Known, String> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut path) => {
                path.pop_if_empty()
                    .extend(["subjects", subject, "versions", &version.to_string()]);
            }
            Err(()) => return Err("its address can't have a path".into()),
        }
        let mut request = self.client.get(url).header(
            "accept",
            "application/vnd.schemaregistry.v1+json, application/json",
        );
        if let Some((user, password)) = &self.user {
            request = request.basic_auth(user, Some(password));
        }
        answer::known(request.send().await, subject, *version).await
    }
}

impl RegistryView {
    pub(super) fn find(&self, subject: &str, version: i32) -> Lookup<'_> {
        let key = (subject.to_owned(), version);
        match self.known.get(&key) {
            Some(Known::Schema(schema)) => Lookup::Found(schema),
            Some(Known::Missing { .. }) => Lookup::Missing,
            Some(Known::Broken { problem, .. }) => Lookup::Broken(problem),
            None => match self.away.get(&key) {
                Some(why) => Lookup::Away(why),
                None => Lookup::NotYet,
            },
        }
    }
}

//! Checks that an event must pass before it is published.
//!
//! The payload is checked against its [`schema`](schemas), the event against the [`rules`], and its version against the
//! earlier [`versions`] of its aggregate. An event that fails becomes a dead letter, which says which check failed and
//! where. A check that is set to warn only logs it. Errors name the place and what was expected, but never values of a
//! payload, because these may be secret.

pub mod folder;
mod recent;
pub mod registry;
pub mod rules;
pub mod schema;
pub mod schemas;
pub mod versions;
mod warnings;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox::Event;
use serde::Serialize;
use serde_json::Value;

use self::{
    rules::{Rule, RuleOptions, Subject},
    schemas::{SchemaOptions, Schemas},
    versions::{AggregateVersions, Memory, Versions},
    warnings::Warnings,
};
use crate::{event::Seq, store::StoreError};

/// How long checks run before they yield to other tasks on the thread. A number of events would not do, because one
/// rule may take long for each event.
const WORK_AT_ONCE: Duration = Duration::from_millis(1);
/// The longest error text of a failed event, in characters.
const ERROR_CHARS_MAX: usize = 1_000;

/// The checks to run. None by default.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    pub schemas: Option<SchemaOptions>,
    pub rules: Vec<RuleOptions>,
    /// Whether the versions of an aggregate must increase, and what happens to an event whose version does not.
    pub aggregate_versions: Option<OnFailure>,
}

impl CheckOptions {
    pub fn is_empty(&self) -> bool {
        self.schemas.is_none() && self.rules.is_empty() && self.aggregate_versions.is_none()
    }
}

/// What happens to an event that fails a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It becomes a dead letter.
    #[default]
    Reject,
    /// It is delivered, and a warning is logged.
    Warn,
}

/// One failed check of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Which check: ``schema `OrderPlaced/1.json` ``, ``rule `stores-named` ``, `aggregate_versions`.
    pub check: String,
    /// Where in the payload (a JSON pointer), or which fields.
    pub path: String,
    pub problem: String,
    pub on_failure: OnFailure,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.check, self.path, self.problem)
    }
}

/// The result of the checks of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Pass,
    /// At least one.
    Failed(Vec<Failure>),
    /// It can't be checked now, because something that the check needs is away.
    Wait {
        error: String,
        /// About how long to wait before the next attempt.
        retry_in: Duration,
    },
}

impl Finding {
    /// How long to wait before the next attempt, if the event can't be checked now.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            Self::Wait { retry_in, .. } => Some(*retry_in),
            _ => None,
        }
    }

    /// Why the event must not be published, as one text. `None` if it may be.
    pub fn rejection(&self) -> Option<String> {
        let Self::Failed(failures) = self else {
            return None;
        };
        let texts: Vec<String> = failures
            .iter()
            .filter(|failure| failure.on_failure == OnFailure::Reject)
            .map(Failure::to_string)
            .collect();
        (!texts.is_empty()).then(|| texts.join("; ").chars().take(ERROR_CHARS_MAX).collect())
    }
}

/// Why the options of the checks can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Folder(#[from] folder::FolderError),
    #[error(transparent)]
    Registry(#[from] registry::RegistryError),
    #[error(transparent)]
    Rule(#[from] rules::RuleError),
}

/// The checks, compiled.
pub struct Checks {
    schemas: Option<Schemas>,
    rules: Vec<Rule>,
    versions: Option<Versions>,
    warnings: Warnings,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}

impl Checks {
    /// Reads the schemas of a folder and compiles the rules. `versions` knows the versions of earlier events. Without
    /// it, only the events checked since the start count.
    pub fn new(
        options: &CheckOptions,
        versions: Option<Arc<dyn AggregateVersions>>,
    ) -> Result<Self, CheckError> {
        Ok(Self {
            schemas: options.schemas.as_ref().map(Schemas::new).transpose()?,
            rules: options
                .rules
                .iter()
                .map(Rule::compile)
                .collect::<Result<_, _>>()?,
            versions: options
                .aggregate_versions
                .map(|on_failure| Versions::new(on_failure, versions)),
            warnings: Warnings::default(),
        })
    }

    /// Reads the schemas of a folder again when they change. Never returns.
    pub async fn keep_fresh(&self, every: Duration) {
        match &self.schemas {
            Some(schemas) => schemas.keep_fresh(every).await,
            None => std::future::pending().await,
        }
    }

    /// Checks events. The events of an aggregate must be in their order. `memory` contains the versions that this
    /// reader has accepted. Without it the versions of aggregates are not checked; this is for events that were
    /// accepted before.
    pub async fn look(
        &self,
        events: &[(Seq, &Event)],
        memory: Option<&mut Memory>,
    ) -> Result<Vec<Finding>, StoreError> {
        let view = match &self.schemas {
            Some(schemas) => Some(schemas.view(events).await),
            None => None,
        };
        let mut findings = Vec::with_capacity(events.len());
        let mut since = Instant::now();
        for (_, event) in events {
            findings.push(self.safely(|| self.look_at(event, view.as_ref())));
            if since.elapsed() >= WORK_AT_ONCE {
                tokio::task::yield_now().await;
                since = Instant::now();
            }
        }
        if let (Some(versions), Some(memory)) = (&self.versions, memory) {
            versions.look(events, &mut findings, memory).await?;
        }
        Ok(findings)
    }

    /// For each event: the schema that its payload must match, or why it is not known. `None` if there is no schema.
    pub async fn schema_names(&self, events: &[Event]) -> Vec<Option<String>> {
        let Some(schemas) = &self.schemas else {
            return vec![None; events.len()];
        };
        let numbered: Vec<(Seq, &Event)> = events.iter().map(|event| (0, event)).collect();
        let view = schemas.view(&numbered).await;
        events.iter().map(|event| view.name(event)).collect()
    }

    /// Logs failures of an event that is delivered all the same. It does so now and then, not for each event, and only
    /// once for the same event, however often it is checked.
    pub fn warn(&self, event: &Event, finding: &Finding) {
        if let Finding::Failed(failures) = finding {
            self.warnings.log(event, failures);
        }
    }

    /// How many failures only caused a warning so far.
    pub fn warned(&self) -> u64 {
        self.warnings.count()
    }

    /// Why schemas are not available, if the registry is away.
    pub fn registry_down(&self) -> Option<String> {
        self.schemas.as_ref()?.registry_down()
    }

    /// A panic in a check counts as a failure of the event. It is not known which check it was, so the `on_failure` of
    /// the schemas applies, if there are any.
    fn safely(&self, look: impl FnOnce() -> Finding) -> Finding {
        catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| {
            Finding::Failed(vec![Failure {
                check: "checks".to_owned(),
                path: "/".to_owned(),
                problem: "a check crashed on this payload".to_owned(),
                on_failure: self.schemas.as_ref().map(Schemas::on_failure).unwrap_or_default(),
            }])
        })
    }

    fn look_at(&self, event: &Event, view: Option<&schemas::View<'_>>) -> Finding {
        let mut failures = Vec::new();
        let mut payload = Payload::new(event);
        if let Some(view) = view
            && let Err(wait) = view.check(event, &mut payload, &mut failures)
        {
            return wait;
        }
        let mut applying = self
            .rules
            .iter()
            .filter(|rule| rule.applies(&event.event_type))
            .peekable();
        if applying.peek().is_some() {
            match payload.parsed() {
                Ok(payload) => {
                    let subject = Subject::new(event, payload);
                    failures.extend(applying.filter_map(|rule| rule.check(&subject)));
                }
                Err(problem) => failures.extend(applying.map(|rule| rule.failed("payload", problem.clone()))),
            }
        }
        if failures.is_empty() {
            Finding::Pass
        } else {
            Finding::Failed(failures)
        }
    }
}

/// A payload that is parsed at most once, and only if a check needs it.
pub(crate) struct Payload<'e> {
    bytes: &'e [u8],
    parsed: Option<Result<Value, String>>,
}

impl<'e> Payload<'e> {
    fn new(event: &'e Event) -> Self {
        Self {
            bytes: &event.payload,
            parsed: None,
        }
    }

    fn parsed(&mut self) -> Result<&Value, String> {
        self.parsed
            .get_or_insert_with(|| {
                serde_json::from_slice(self.bytes)
                    .map_err(|error| format!("the payload can't be read: {error}"))
            })
            .as_ref()
            .map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests;

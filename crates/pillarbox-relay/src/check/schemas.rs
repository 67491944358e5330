//! Finds the schema for a payload, in a folder or a registry.

use std::{path::PathBuf, sync::Arc, time::Duration};

use pillarbox::Event;

use super::{
    CheckError, Failure, Finding, OnFailure, Payload,
    folder::{Folder, Set},
    registry::{Registry, RegistryOptions, RegistryView, WhenAway},
    schema::Schema,
};
use crate::event::Seq;

/// When an event is checked again whose schema has been requested.
const NOT_YET: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct SchemaOptions {
    pub source: SchemaSource,
    /// Whether an event type without a schema passes.
    pub missing_passes: bool,
    pub on_failure: OnFailure,
}

#[derive(Debug, Clone)]
pub enum SchemaSource {
    Folder(PathBuf),
    Registry(RegistryOptions),
}

pub(super) struct Schemas {
    source: Source,
    missing_passes: bool,
    on_failure: OnFailure,
}

enum Source {
    Folder(Folder),
    Registry(Arc<Registry>),
}

/// The result of looking for a schema.
pub(super) enum Lookup<'a> {
    Found(&'a Schema),
    Missing,
    /// There is one, but it can't be used.
    Broken(&'a str),
    /// The registry is away.
    Away(&'a str),
    /// It has been requested.
    NotYet,
}

impl Schemas {
    pub(super) fn new(options: &SchemaOptions) -> Result<Self, CheckError> {
        Ok(Self {
            source: match &options.source {
                SchemaSource::Folder(path) => Source::Folder(Folder::open(path)?),
                SchemaSource::Registry(registry) => Source::Registry(Arc::new(Registry::open(registry)?)),
            },
            missing_passes: options.missing_passes,
            on_failure: options.on_failure,
        })
    }

    pub(super) fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    pub(super) async fn keep_fresh(&self, every: Duration) {
        match &self.source {
            Source::Folder(folder) => folder.keep_fresh(every).await,
            // A version of a subject never changes.
            Source::Registry(_) => std::future::pending().await,
        }
    }

    /// The schemas that these events need, as they are now.
    pub(super) async fn view<'s>(&'s self, events: &[(Seq, &Event)]) -> View<'s> {
        let found = match &self.source {
            Source::Folder(folder) => Kept::Folder(folder.set()),
            Source::Registry(registry) => Kept::Registry(registry, registry.view(events).await),
        };
        View { schemas: self, found }
    }

    pub(super) fn registry_down(&self) -> Option<String> {
        match &self.source {
            Source::Folder(_) => None,
            Source::Registry(registry) => registry.down(),
        }
    }
}

/// The schemas for some events.
pub(super) struct View<'s> {
    schemas: &'s Schemas,
    found: Kept<'s>,
}

enum Kept<'s> {
    Folder(Arc<Set>),
    Registry(&'s Registry, RegistryView),
}

impl View<'_> {
    /// Adds the failures. `Err`: the event can't be checked now.
    pub(super) fn check(
        &self,
        event: &Event,
        payload: &mut Payload<'_>,
        failures: &mut Vec<Failure>,
    ) -> Result<(), Finding> {
        let (event_type, version) = (&event.event_type, event.schema_version);
        let mut fail = |check: String, path: &str, problem: String, on_failure: OnFailure| {
            failures.push(Failure {
                check,
                path: path.to_owned(),
                problem,
                on_failure,
            });
        };
        let on_failure = self.schemas.on_failure;
        match self.find(event) {
            Lookup::Found(schema) => {
                let check = || format!("schema `{}`", schema.name);
                match payload.parsed() {
                    Ok(payload) => {
                        for problem in schema.problems(payload) {
                            fail(check(), &problem.path, problem.text, on_failure);
                        }
                    }
                    Err(problem) => fail(check(), "/", problem, on_failure),
                }
            }
            Lookup::Missing if self.schemas.missing_passes => {}
            // A missing schema has its own policy. `on_failure` is only about payloads that do not match.
            Lookup::Missing => fail(
                "schema".to_owned(),
                "event_type",
                format!("there is no schema for `{event_type}`, version {version}"),
                OnFailure::Reject,
            ),
            Lookup::Broken(problem) => {
                fail("schema".to_owned(), "event_type", problem.to_owned(), on_failure)
            }
            Lookup::NotYet => {
                return Err(Finding::Wait {
                    error: "the schema registry has not answered yet".to_owned(),
                    retry_in: NOT_YET,
                });
            }
            Lookup::Away(why) => {
                let Kept::Registry(registry, _) = &self.found else {
                    return Ok(());
                };
                match registry.when_away() {
                    WhenAway::Pass => {}
                    WhenAway::Reject => fail(
                        "schema".to_owned(),
                        "event_type",
                        why.to_owned(),
                        OnFailure::Reject,
                    ),
                    WhenAway::Wait => {
                        return Err(Finding::Wait {
                            error: why.to_owned(),
                            retry_in: registry.ask_again_in(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The schema's name, or why it is not known. `None` if there is no schema.
    pub(super) fn name(&self, event: &Event) -> Option<String> {
        match self.find(event) {
            Lookup::Found(schema) => Some(schema.name.clone()),
            Lookup::Missing => None,
            Lookup::Broken(problem) => Some(format!("can't be used: {problem}")),
            Lookup::Away(why) => Some(format!("not known: {why}")),
            Lookup::NotYet => Some("not known yet".to_owned()),
        }
    }

    fn find(&self, event: &Event) -> Lookup<'_> {
        match &self.found {
            Kept::Folder(set) => match set.find(&event.event_type, event.schema_version) {
                Some(schema) => Lookup::Found(schema),
                None => Lookup::Missing,
            },
            Kept::Registry(registry, view) => view.find(&registry.subject(event), event.schema_version),
        }
    }
}

//! The checks before publishing.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use pillarbox_relay::{
    check::{
        CheckOptions, OnFailure,
        registry::{self, RegistryOptions, WhenAway},
        rules::{Rule, RuleOptions},
        schemas::{SchemaOptions, SchemaSource},
    },
    tls::TlsFiles,
};

use super::{Problems, within};
use crate::config::schema;

const RULES_MAX: usize = 200;
/// The variables of a subject.
const PLACEHOLDERS: &[&str] = &["{event_type}", "{topic}", "{aggregate_type}"];

/// The checks, and how often to look for changes of the schema folder.
#[derive(Clone)]
pub(crate) struct CheckSettings {
    pub options: CheckOptions,
    pub reload: Duration,
}

pub(super) fn checks(outbox: &schema::Outbox, problems: &mut Problems) -> CheckSettings {
    let validation = &outbox.validation;
    within(
        problems,
        key("schema_reload_seconds"),
        validation.schema_reload_seconds,
        86_400,
    );
    CheckSettings {
        options: CheckOptions {
            schemas: schemas(validation, problems),
            rules: rules(validation, problems),
            aggregate_versions: match validation.aggregate_versions {
                schema::AggregateVersions::Off => None,
                schema::AggregateVersions::Warn => Some(OnFailure::Warn),
                schema::AggregateVersions::Reject => Some(OnFailure::Reject),
            },
        },
        reload: Duration::from_secs(validation.schema_reload_seconds),
    }
}

fn schemas(validation: &schema::Validation, problems: &mut Problems) -> Option<SchemaOptions> {
    let identity = identity(validation, problems);
    let mut refuse = |name: &str, text: String| problems.push((key(name), text));
    if let Some(url) = &validation.schema_registry_url
        && let Err(error) = registry::parse(url)
    {
        refuse("schema_registry_url", error.to_string());
    }
    let subject = &validation.schema_registry_subject;
    let rest = PLACEHOLDERS
        .iter()
        .fold(subject.clone(), |rest, known| rest.replace(known, ""));
    if rest == *subject || rest.contains(['{', '}']) {
        refuse(
            "schema_registry_subject",
            format!(
                "it consists of text and one or more of {}",
                PLACEHOLDERS.join(", ")
            ),
        );
    }
    let given = [
        ("schema_folder", validation.schema_folder.is_some()),
        ("schema_registry_url", validation.schema_registry_url.is_some()),
    ];
    match validation.enable_schema_validation {
        Some(true) => {}
        Some(false) => return None,
        None => {
            for (name, _) in given.into_iter().filter(|(_, given)| *given) {
                refuse(name, unused("enable_schema_validation"));
            }
            return None;
        }
    }
    let source = match (&validation.schema_folder, &validation.schema_registry_url) {
        (Some(folder), None) => SchemaSource::Folder(folder.clone()),
        (None, Some(url)) => SchemaSource::Registry(RegistryOptions {
            subject: subject.clone(),
            when_away: match validation.schema_registry_when_away {
                schema::WhenAway::Wait => WhenAway::Wait,
                schema::WhenAway::Pass => WhenAway::Pass,
                schema::WhenAway::Reject => WhenAway::Reject,
            },
            tls: TlsFiles {
                ca: validation.schema_registry_ca.clone(),
                identity,
            },
            ..RegistryOptions::new(url)
        }),
        (None, None) => {
            refuse(
                "enable_schema_validation",
                "schemas need a source. Give a `schema_folder` or a `schema_registry_url`".into(),
            );
            return None;
        }
        (Some(_), Some(_)) => {
            refuse(
                "schema_registry_url",
                "schemas come from a folder or from a registry: leave out this key or `schema_folder`".into(),
            );
            return None;
        }
    };
    Some(SchemaOptions {
        source,
        missing_passes: validation.schema_missing == schema::SchemaMissing::Pass,
        on_failure: on_failure(validation.schema_on_failure),
    })
}

/// Our certificate for the registry, and its key.
fn identity(validation: &schema::Validation, problems: &mut Problems) -> Option<(PathBuf, PathBuf)> {
    let given = (&validation.schema_registry_cert, &validation.schema_registry_key);
    let (has, needs) = match given {
        (Some(certificate), Some(key)) => return Some((certificate.clone(), key.clone())),
        (None, None) => return None,
        (Some(_), None) => ("schema_registry_cert", "schema_registry_key"),
        (None, Some(_)) => ("schema_registry_key", "schema_registry_cert"),
    };
    problems.push((key(has), format!("it needs `{needs}` too")));
    None
}

fn rules(validation: &schema::Validation, problems: &mut Problems) -> Vec<RuleOptions> {
    let mut names = HashSet::new();
    let mut options = Vec::new();
    for (index, rule) in validation.rules.iter().take(RULES_MAX).enumerate() {
        let mut refuse =
            |name: &str, text: String| problems.push((key(&format!("rules.{index}.{name}")), text));
        if rule.name.trim().is_empty() || rule.name.len() > 100 || rule.name.contains(['`', '\n']) {
            refuse(
                "name",
                "a name has 1 to 100 characters, no backtick and no line break".into(),
            );
        }
        if !names.insert(&rule.name) {
            refuse("name", format!("another rule is also called `{}`", rule.name));
        }
        let rule = RuleOptions {
            name: rule.name.clone(),
            event_type: rule.event_type.clone(),
            rule: rule.rule.clone(),
            message: rule.message.clone(),
            on_failure: on_failure(rule.on_failure),
        };
        if let Err(error) = Rule::compile(&rule) {
            refuse("rule", error.to_string());
        }
        options.push(rule);
    }
    let mut refuse = |name: &str, text: &str| problems.push((key(name), text.to_owned()));
    if validation.rules.len() > RULES_MAX {
        refuse("rules", "there are more than 200 rules");
    }
    match (validation.enable_business_rule_validation, options.is_empty()) {
        (Some(true), true) => refuse(
            "enable_business_rule_validation",
            "there are no `rules`: add some, or set this to false",
        ),
        (None, false) => refuse("rules", &unused("enable_business_rule_validation")),
        (Some(false), _) => options.clear(),
        _ => {}
    }
    options
}

/// A value is given, but its switch is not set.
fn unused(switch: &str) -> String {
    format!("set `{switch}` to true to use this, or to false to keep it unused")
}

fn on_failure(given: schema::OnFailure) -> OnFailure {
    match given {
        schema::OnFailure::Reject => OnFailure::Reject,
        schema::OnFailure::Warn => OnFailure::Warn,
    }
}

fn key(name: &str) -> String {
    format!("outbox.validation.{name}")
}

//! Rules in CEL, the Common Expression Language, for what a schema can't express.
//!
//! A rule is an expression over `payload`, `headers` and the event's fields. An event passes if the result is `true`.
//! CEL always terminates, and in addition the time of a rule is limited: see `limit`.

mod compile;
mod limit;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::{Context, ExecutionError, Value as CelValue, common::ast::IdedExpr, common::types::CelBool};
use thiserror::Error;

pub use self::values::Subject;
use super::{Failure, OnFailure};

/// In characters.
const RULE_CHARS_MAX: usize = 4_000;

#[derive(Debug, Clone)]
pub struct RuleOptions {
    pub name: String,
    /// The event types to which it applies. `*` matches any text.
    pub event_type: String,
    pub rule: String,
    /// The error text if the rule fails, instead of the rule itself.
    pub message: Option<String>,
    pub on_failure: OnFailure,
}

#[derive(Debug, Error)]
#[error("the rule `{name}` can't be used: {problem}")]
pub struct RuleError {
    pub name: String,
    pub problem: String,
}

/// A compiled rule.
pub struct Rule {
    /// Its name in failures.
    check: String,
    event_type: String,
    expression: IdedExpr,
    source: String,
    /// The fields it reads.
    reads: String,
    message: String,
    on_failure: OnFailure,
}

impl Rule {
    pub fn compile(options: &RuleOptions) -> Result<Self, RuleError> {
        let problem = |problem: String| RuleError {
            name: options.name.clone(),
            problem,
        };
        if options.rule.chars().count() > RULE_CHARS_MAX {
            return Err(problem(format!("it is longer than {RULE_CHARS_MAX} characters")));
        }
        let source = options.rule.trim().to_owned();
        let (expression, reads) = compile::apart(&source).map_err(problem)?;
        Ok(Self {
            check: format!("rule `{}`", options.name),
            event_type: options.event_type.clone(),
            expression,
            reads,
            message: match &options.message {
                Some(message) => message.clone(),
                None => format!("`{source}` does not hold"),
            },
            source,
            on_failure: options.on_failure,
        })
    }

    pub fn applies(&self, event_type: &str) -> bool {
        matches_pattern(&self.event_type, event_type)
    }

    /// `None` if the event passes.
    pub fn check(&self, subject: &Subject<'_>) -> Option<Failure> {
        match self.evaluate(subject) {
            Ok(Some(true)) => None,
            Ok(Some(false)) => Some(self.failed(&self.reads, self.message.clone())),
            Ok(None) => Some(self.failed(
                &self.reads,
                format!("{} (the result is neither true nor false)", self.message),
            )),
            Err(why) => Some(self.failed(&self.reads, format!("{} ({why})", self.message))),
        }
    }

    pub(super) fn failed(&self, path: &str, problem: String) -> Failure {
        Failure {
            check: self.check.clone(),
            path: path.to_owned(),
            problem,
            on_failure: self.on_failure,
        }
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<Option<bool>, String> {
        let run = || {
            let mut context = Context::with_env(limit::environment());
            context.set_variable_resolver(subject);
            limit::start();
            CelValue::resolve_val(&self.expression, &context)
                .map(|value| value.downcast_ref::<CelBool>().map(|value| *value.inner()))
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.explain(&error)),
            Err(_) => Err("its evaluation crashed".into()),
        }
    }

    /// Explains an error without values of the event. The errors' own texts would show values.
    fn explain(&self, error: &ExecutionError) -> String {
        match error {
            // A name that is part of the rule is no secret. A computed one may be.
            ExecutionError::NoSuchKey(name) if self.source.contains(name.as_str()) => {
                format!("there is no `{name}`")
            }
            ExecutionError::NoSuchKey(_) => "a key is missing".into(),
            ExecutionError::UndeclaredReference(name) => format!("there is no `{name}`"),
            ExecutionError::NoSuchOverload(overload) => format!(
                "`{}` can't be used on {}",
                overload.function(),
                overload.argument_types().join(" and ")
            ),
            ExecutionError::UnexpectedType { got, want } => format!("a {got} where a {want} is needed"),
            ExecutionError::ValuesNotComparable(left, right) => {
                format!("{} and {} can't be compared", left.type_of(), right.type_of())
            }
            ExecutionError::FunctionError { function, .. } if function == limit::STEP => {
                "it takes too long".into()
            }
            ExecutionError::FunctionError { function, .. } => format!("`{function}` failed"),
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                "division by zero".into()
            }
            ExecutionError::Overflow(..) => "a number is too large".into(),
            ExecutionError::IndexOutOfBounds(_) => "an index is out of bounds".into(),
            _ => "it can't be evaluated on this event".into(),
        }
    }
}

/// `*` matches any text, including none.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;

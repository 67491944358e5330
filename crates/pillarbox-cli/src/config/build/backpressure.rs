//! Limits on pending events.

use std::time::Duration;

use pillarbox::pressure::Limit;
use pillarbox_relay::{pressure::Class, route::Pattern};

use super::{Problems, schema};

/// A producer checks all classes, so there must not be many.
const CLASSES_MAX: usize = 16;
const NAME_CHARS_MAX: usize = 64;
/// A longer wait inside a transaction would do more harm than a refusal.
const DELAY_MS_MAX: u64 = 5_000;
const EVENTS_MAX: u64 = 1_000_000_000;

/// `None`: this relay does not change the limits.
pub(super) fn classes(outbox: &schema::Outbox, problems: &mut Problems) -> Option<Vec<Class>> {
    let given = outbox.backpressure.classes.as_ref()?;
    Some(read(given, problems))
}

fn read(given: &[schema::PressureClass], problems: &mut Problems) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::with_capacity(given.len());
    if given.len() > CLASSES_MAX {
        let text = format!("there are {} classes; the maximum is {CLASSES_MAX}", given.len());
        problems.push(("outbox.backpressure.classes".into(), text));
        return classes;
    }
    for (index, class) in given.iter().enumerate() {
        let key = format!("outbox.backpressure.classes.{index}");
        let mut refuse = |text: String| problems.push((key.clone(), text));
        let name = &class.name;
        if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            refuse(format!(
                "a name has 1 to {NAME_CHARS_MAX} characters and no control characters"
            ));
        } else if classes.iter().any(|earlier| earlier.name == *name) {
            refuse(format!("there are two classes `{}`", super::word(name)));
        }
        if class.topics.is_empty() && index + 1 < given.len() {
            refuse(
                "without `topics` it matches everything, so the classes after it match nothing: put it last"
                    .into(),
            );
        }
        let mut topics = Vec::with_capacity(class.topics.len());
        for topic in &class.topics {
            match Pattern::new(topic) {
                Ok(pattern) => topics.push(pattern),
                Err(error) => refuse(error.to_string()),
            }
        }
        let limits = [class.soft, class.hard];
        if class.never_refuse && limits.iter().any(Option::is_some) {
            refuse("`never_refuse` can't be combined with `soft` or `hard`".into());
        }
        if !class.never_refuse && limits.iter().all(Option::is_none) {
            refuse("give it a `soft` or a `hard` limit, or `never_refuse: true`".into());
        }
        if limits
            .iter()
            .flatten()
            .any(|limit| !(1..=EVENTS_MAX).contains(limit))
        {
            refuse(format!("a limit is 1 to {EVENTS_MAX} events"));
        }
        if class
            .hard
            .is_some_and(|hard| class.soft.is_some_and(|soft| soft >= hard))
        {
            refuse("`soft` must be below `hard`".into());
        }
        if class.max_delay_ms > DELAY_MS_MAX {
            refuse(format!(
                "`max_delay_ms` is {}; the maximum is {DELAY_MS_MAX}",
                class.max_delay_ms
            ));
        }
        classes.push(Class {
            name: name.clone(),
            topics,
            limit: Limit {
                soft: class.soft,
                hard: class.hard,
                max_delay: Duration::from_millis(class.max_delay_ms),
            },
        });
    }
    classes
}

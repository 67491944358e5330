//! Which entries a reader wants.

use jiff::Timestamp;
use pillarbox::{Event, wire};
use serde::Deserialize;

use super::LogEntry;
use crate::route::Pattern;

/// The most characters of a text that is compared.
const CHARS_MAX: usize = 255;

/// Selects entries of the log. Fields that are not set do not restrict the selection.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogFilter {
    /// A topic, or a pattern as in routes.
    pub topic: Option<String>,
    pub event_type: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub project_id: Option<String>,
    pub user_id: Option<String>,
    pub correlation_id: Option<String>,
    /// `published` or `dead`.
    pub status: Option<String>,
    /// Written to the log at this time or later.
    pub since: Option<Timestamp>,
    /// Written to the log before this time.
    pub until: Option<Timestamp>,
}

impl LogFilter {
    /// Whether an entry is selected.
    pub fn matches(&self, entry: &LogEntry) -> bool {
        let status = self.status.as_deref();
        status.is_none_or(|status| status == entry.outcome.status())
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
            && self.selects(&entry.event)
    }

    /// Whether an event is selected, as far as it depends on the event alone.
    pub fn selects(&self, event: &Event) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        let has =
            |wanted: &Option<String>, value: Option<&String>| wanted.is_none() || wanted.as_ref() == value;
        is(&self.event_type, &event.event_type)
            && is(&self.aggregate_type, &event.aggregate_type)
            && is(&self.aggregate_id, &event.aggregate_id)
            && has(&self.project_id, event.project_id.as_ref())
            && has(&self.user_id, event.user_id.as_ref())
            && self.has_correlation(event)
            && self.matches_topic(&event.topic)
    }

    /// The log has the beginning of a long one, for its index.
    fn has_correlation(&self, event: &Event) -> bool {
        let Some(wanted) = &self.correlation_id else {
            return true;
        };
        let given = event.headers.get(wire::CORRELATION_ID);
        given.is_some_and(|given| given.chars().take(CHARS_MAX).eq(wanted.chars()))
    }

    pub fn matches_topic(&self, topic: &str) -> bool {
        self.topic
            .as_deref()
            .is_none_or(|pattern| pillarbox::pressure::matches(pattern, topic))
    }

    /// The topic, if it is one topic and no pattern.
    pub fn exact_topic(&self) -> Option<&str> {
        let topic = self.topic.as_deref()?;
        (!topic.split('.').any(|token| matches!(token, "*" | ">"))).then_some(topic)
    }

    /// Why it can't be used.
    pub fn problem(&self) -> Option<String> {
        let texts = [
            ("topic", &self.topic),
            ("event_type", &self.event_type),
            ("aggregate_type", &self.aggregate_type),
            ("aggregate_id", &self.aggregate_id),
            ("project_id", &self.project_id),
            ("user_id", &self.user_id),
            ("correlation_id", &self.correlation_id),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            if text.contains('\0') {
                return Some(format!("`{name}` contains a NUL"));
            }
            if text.len() > CHARS_MAX {
                return Some(format!("`{name}` has more than {CHARS_MAX} bytes"));
            }
        }
        if let Some(topic) = &self.topic
            && let Err(error) = Pattern::new(topic)
        {
            return Some(error.to_string());
        }
        match self.status.as_deref() {
            None | Some("published" | "dead") => None,
            Some(other) => Some(format!(
                "`{other}` is not a status of the log: use published or dead"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_restricts() {
        let event = Event::to("chat.message")
            .event_type("MessageCreated")
            .aggregate("session", "s-1")
            .project_id("p")
            .user_id("u")
            .header(wire::CORRELATION_ID, "c");
        type Change = fn(&mut LogFilter, &str);
        let set = |change: Change, value: &str| {
            let mut filter = LogFilter::default();
            change(&mut filter, value);
            filter
        };
        assert!(LogFilter::default().selects(&event));
        let fields: [(Change, &str); 7] = [
            (|f, v| f.topic = Some(v.into()), "chat.message"),
            (|f, v| f.event_type = Some(v.into()), "MessageCreated"),
            (|f, v| f.aggregate_type = Some(v.into()), "session"),
            (|f, v| f.aggregate_id = Some(v.into()), "s-1"),
            (|f, v| f.project_id = Some(v.into()), "p"),
            (|f, v| f.user_id = Some(v.into()), "u"),
            (|f, v| f.correlation_id = Some(v.into()), "c"),
        ];
        for (change, value) in fields {
            assert!(set(change, value).selects(&event), "{value}");
            assert!(!set(change, "other").selects(&event), "{value}");
        }
        assert!(set(fields[0].0, "chat.>").selects(&event));
        assert!(!set(fields[0].0, "orders.>").selects(&event));
    }

    #[test]
    fn an_event_without_a_project_belongs_to_none() {
        let filter = LogFilter {
            project_id: Some("p".into()),
            ..LogFilter::default()
        };
        assert!(!filter.selects(&Event::to("a").event_type("A").aggregate("a", "1")));
    }

    #[test]
    fn a_filter_that_can_match_nothing_says_why() {
        let topic = |topic: &str| LogFilter {
            topic: Some(topic.into()),
            ..LogFilter::default()
        };
        assert_eq!(topic("a.>").problem(), None);
        assert_eq!(topic("a.b").exact_topic(), Some("a.b"));
        assert_eq!(topic("a.*").exact_topic(), None);
        assert!(topic("a.>.b").problem().is_some());
        assert!(topic("a\0").problem().is_some());
        let status = LogFilter {
            status: Some("pending".into()),
            ..LogFilter::default()
        };
        assert!(status.problem().unwrap().contains("published or dead"));
    }
}

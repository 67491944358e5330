//! Which sink, and which stream of it, an event goes to.

#[cfg(test)]
mod fuzz;

use std::sync::Arc;

use pillarbox::Event;

use crate::envelope::Envelope;

/// A topic pattern, and where matching events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub topic: Pattern,
    /// The sink's name in the configuration.
    pub sink: Arc<str>,
    pub stream: Option<Arc<str>>,
    pub envelope: Envelope,
    pub after_death: AfterDeath,
    /// Whether the event log records its events.
    pub event_log: bool,
}

/// What happens to a key after one of its events died.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AfterDeath {
    /// It continues with the next event.
    #[default]
    Skip,
    /// It waits until somebody replays or discards the dead letter.
    Block,
    /// It continues with the newest event. Older events with the same topic that wait behind the dead one are
    /// discarded. For topics whose events each contain the whole state.
    Latest,
}

/// A topic pattern as in NATS: tokens between dots. `*` matches one token; a final `>` matches all the rest (one or
/// more).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{pattern}` is not a topic pattern: {why}. Write tokens between dots; `*` matches one token, a final `>` all the rest"
)]
pub struct PatternError {
    pattern: String,
    why: &'static str,
}

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        let refuse = |why| {
            Err(PatternError {
                pattern: pattern.to_owned(),
                why,
            })
        };
        if pattern.is_empty() {
            return refuse("it is empty");
        }
        let tokens: Vec<&str> = pattern.split('.').collect();
        for (index, token) in tokens.iter().enumerate() {
            if token.is_empty() {
                return refuse("a token is empty");
            }
            if token.chars().any(char::is_whitespace) {
                return refuse("it contains white space");
            }
            if *token == ">" && index + 1 < tokens.len() {
                return refuse("`>` is not at the end");
            }
            if token.len() > 1 && token.contains(['*', '>']) {
                return refuse("`*` and `>` must stand alone between dots");
            }
        }
        Ok(Self(pattern.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, topic: &str) -> bool {
        pillarbox::pressure::matches(&self.0, topic)
    }
}

/// The routes in their order. The first match wins. Without routes, everything goes to the only sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    routes: Vec<Route>,
    /// Where everything goes if there are no routes.
    only_sink: Option<Arc<str>>,
    /// Whether the event log records events that no route decides about.
    event_log: bool,
}

/// What the matching route says about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteMatch {
    pub sink: Arc<str>,
    pub stream: Option<Arc<str>>,
    pub envelope: Envelope,
    pub after_death: AfterDeath,
    pub event_log: bool,
}

impl Routes {
    pub fn to_one(sink: &str) -> Self {
        Self {
            routes: Vec::new(),
            only_sink: Some(sink.into()),
            event_log: false,
        }
    }

    pub fn new(routes: Vec<Route>) -> Self {
        Self {
            routes,
            only_sink: None,
            event_log: false,
        }
    }

    /// Whether the event log records the events that no route decides about: all of them if there are no routes, else
    /// those that die because no route matches.
    pub fn event_log(self, event_log: bool) -> Self {
        Self { event_log, ..self }
    }

    /// Whether the event log records any events.
    pub fn have_event_log(&self) -> bool {
        self.event_log || self.routes.iter().any(|route| route.event_log)
    }

    /// Whether the event log records a dead event with this topic.
    pub fn is_logged(&self, topic: &str) -> bool {
        let route = self.routes.iter().find(|route| route.topic.matches(topic));
        route.map_or(self.event_log, |route| route.event_log)
    }

    /// What happens to the key of a dead event with this topic.
    pub fn after_death(&self, topic: &str) -> AfterDeath {
        let route = self.routes.iter().find(|route| route.topic.matches(topic));
        route.map_or(AfterDeath::Skip, |route| route.after_death)
    }

    /// The first route that matches the event's topic. `None`: no route matches, and the event becomes a dead letter
    /// that says so.
    pub fn matching(&self, event: &Event) -> Option<RouteMatch> {
        let own = || event.stream.as_deref().map(Arc::from);
        if let Some(sink) = &self.only_sink {
            return Some(RouteMatch {
                sink: sink.clone(),
                stream: own(),
                envelope: Envelope::default(),
                after_death: AfterDeath::Skip,
                event_log: self.event_log,
            });
        }
        let route = self
            .routes
            .iter()
            .find(|route| route.topic.matches(&event.topic))?;
        Some(RouteMatch {
            sink: route.sink.clone(),
            stream: own().or_else(|| route.stream.clone()),
            envelope: route.envelope.clone(),
            after_death: route.after_death,
            event_log: route.event_log,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_nats() {
        for (pattern, topic, expected) in [
            ("rwa.>", "rwa.inventory.updated", true),
            ("rwa.>", "rwa", false),
            ("payout.*", "payout.generated", true),
            ("payout.*", "payout.generated.late", false),
            ("*.b", "a.b", true),
            (">", "a", true),
            ("a.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.b", "a", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).unwrap().matches(topic),
                expected,
                "{pattern} {topic}"
            );
        }
    }

    #[test]
    fn a_bad_pattern_says_why() {
        for pattern in ["", "a..b", "a.>.b", "a*", "a b"] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn the_first_route_wins_and_an_event_may_name_its_stream() {
        let route = |topic: &str, stream: &str| Route {
            topic: Pattern::new(topic).unwrap(),
            sink: "events".into(),
            stream: Some(stream.into()),
            envelope: Envelope::Raw,
            after_death: AfterDeath::Skip,
            event_log: false,
        };
        let routes = Routes::new(vec![route("a.>", "A"), route("a.b", "B")]);
        let event = Event::to("a.b").event_type("X").aggregate("x", "1");
        assert_eq!(routes.matching(&event).unwrap().stream.as_deref(), Some("A"));
        assert_eq!(
            routes.matching(&event.stream("OWN")).unwrap().stream.as_deref(),
            Some("OWN")
        );
        assert_eq!(
            routes.matching(&Event::to("z").event_type("X").aggregate("x", "1")),
            None
        );
    }
}

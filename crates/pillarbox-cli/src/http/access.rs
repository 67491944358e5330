//! Who sends a request, and what that caller may do and see.
//!
//! Each operation names the role it needs in its OpenAPI description (`security`), and [`gate`] refuses
//! everybody else before the handler runs. A handler that returns or writes events takes a [`Caller`] and
//! applies its scope with [`Caller::restrict`] or [`Caller::stamp`]; its description then has the extension
//! `x-scoped: true`. Without it, a caller with a scope is refused.

pub(super) mod audit;
pub(super) mod gate;
mod jwt;
mod limits;
pub(super) mod names;
mod policy;
pub(super) mod refusals;
mod tokens;

use std::{sync::Arc, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use jiff::Timestamp;
use pillarbox::Event;

use super::problem::Problem;
pub(crate) use crate::config::Role;

/// The author of actions that arrive without a token and name nobody.
const ANYONE: &str = "http";

/// The sender of a request. Handlers take it as an argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Caller {
    /// With a prefix that says where it is from, except that of a static token: see [`names`].
    name: Arc<str>,
    roles: Arc<[Role]>,
    project: Option<Arc<str>>,
    user: Option<Arc<str>>,
    /// Whether it showed a token or a certificate.
    known: bool,
    /// From then on its token is refused. `None`: never.
    expires: Option<Timestamp>,
}

impl Caller {
    pub(super) fn new(name: &str, roles: &[Role], project: Option<&str>, user: Option<&str>) -> Self {
        Self {
            name: name.into(),
            roles: roles.into(),
            project: project.map(Into::into),
            user: user.map(Into::into),
            known: true,
            expires: None,
        }
    }

    fn until(self, expires: Option<Timestamp>) -> Self {
        Self { expires, ..self }
    }

    /// Everybody on this machine, if no token is configured. It has all roles.
    pub(super) fn anyone() -> Self {
        Self {
            known: false,
            ..Self::new(ANYONE, &[Role::Produce, Role::Operate], None, None)
        }
    }

    /// Somebody who asks for what is public.
    pub(super) fn nobody() -> Self {
        Self {
            known: false,
            ..Self::new("", &[], None, None)
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How long its token is still accepted. `None`: for ever.
    pub(crate) fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.expires?.duration_since(now);
        Some(left.try_into().unwrap_or(Duration::ZERO))
    }

    /// `operate` includes `read`.
    pub(crate) fn may(&self, role: Role) -> bool {
        self.roles.contains(&role) || role == Role::Read && self.roles.contains(&Role::Operate)
    }

    /// Whether it is limited to a project or a user.
    pub(crate) fn is_scoped(&self) -> bool {
        self.project.is_some() || self.user.is_some()
    }

    /// The project and the user that a filter must have for this caller: what it asked for, or its scope. Asking for
    /// others is refused.
    pub(crate) fn restrict(
        &self,
        project: Option<String>,
        user: Option<String>,
    ) -> Result<(Option<String>, Option<String>), Problem> {
        Ok((
            within(self.project.as_deref(), project, "project")?,
            within(self.user.as_deref(), user, "user")?,
        ))
    }

    /// Gives the events the caller's project and user. Events of others are refused.
    pub(crate) fn stamp(&self, events: &mut [Event]) -> Result<(), Problem> {
        if !self.is_scoped() {
            return Ok(());
        }
        for (index, event) in events.iter_mut().enumerate() {
            let scope = self.restrict(event.project_id.take(), event.user_id.take());
            (event.project_id, event.user_id) = scope.map_err(|problem| problem.of_event(index))?;
        }
        Ok(())
    }

    /// Who did something, for its record: the caller. `by` is what the request says about it; without a token, it is
    /// all that is known.
    pub(crate) fn author(&self, by: Option<String>) -> String {
        match by {
            Some(by) if self.known => format!("{} (by {by})", self.name),
            Some(by) => by,
            None => self.name.to_string(),
        }
    }
}

fn within(scope: Option<&str>, wanted: Option<String>, what: &str) -> Result<Option<String>, Problem> {
    match (scope, wanted) {
        (None, wanted) => Ok(wanted),
        (Some(scope), None) => Ok(Some(scope.to_owned())),
        (Some(scope), Some(wanted)) if scope == wanted => Ok(Some(wanted)),
        (Some(scope), Some(_)) => Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!("this token is only for the {what} `{scope}`: ask for that one, or leave it out"),
        )),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            let text = "the caller of this request was not checked: this is an error of Pillarbox";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_scope_is_filled_in_and_others_are_refused() {
        let open = Caller::new("ci", &[Role::Read], None, None);
        assert_eq!(open.restrict(text("a"), None).ok(), Some((text("a"), None)));
        let scoped = Caller::new("ci", &[Role::Read], Some("a"), None);
        assert_eq!(scoped.restrict(None, None).ok(), Some((text("a"), None)));
        assert_eq!(
            scoped.restrict(text("a"), text("zoe")).ok(),
            Some((text("a"), text("zoe")))
        );
        assert!(scoped.restrict(text("b"), None).is_err());
        assert!(
            scoped.restrict(text(""), None).is_err(),
            "an empty one is another one"
        );
        let person = Caller::new("ci", &[Role::Read], Some("a"), Some("zoe"));
        assert!(person.restrict(text("a"), text("bob")).is_err());
    }

    #[test]
    fn events_get_the_scope_of_their_caller() {
        let event = || Event::to("t.x").event_type("X").aggregate("a", "1").payload("{}");
        let scoped = Caller::new("ci", &[Role::Produce], Some("a"), None);
        let mut events = [event(), event()];
        events[1].user_id = text("zoe");
        assert!(scoped.stamp(&mut events).is_ok());
        assert_eq!(
            (&events[0].project_id, &events[1].project_id),
            (&text("a"), &text("a"))
        );
        assert_eq!(events[1].user_id, text("zoe"));
        events[0].project_id = text("b");
        assert!(scoped.stamp(&mut events).is_err());
    }

    #[test]
    fn operate_includes_read_and_nothing_includes_produce() {
        let caller = |role| Caller::new("ci", &[role], None, None);
        assert!(caller(Role::Operate).may(Role::Read) && caller(Role::Operate).may(Role::Operate));
        assert!(!caller(Role::Operate).may(Role::Produce) && !caller(Role::Read).may(Role::Operate));
        let anyone = Caller::anyone();
        assert!([Role::Produce, Role::Read, Role::Operate].map(|role| anyone.may(role)) == [true; 3]);
        assert!(!Caller::nobody().may(Role::Read));
    }

    #[test]
    fn a_caller_has_as_much_time_as_its_token() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let caller = Caller::new("jwt:zoe", &[Role::Read], None, None);
        assert_eq!(caller.time_left(at(0)), None);
        let caller = caller.until(Some(at(100)));
        assert_eq!(caller.time_left(at(60)), Some(Duration::from_secs(40)));
        assert_eq!(caller.time_left(at(160)), Some(Duration::ZERO));
    }

    #[test]
    fn the_author_is_the_token_and_the_request_only_adds_to_it() {
        let known = Caller::new("ci", &[Role::Operate], None, None);
        assert_eq!(known.author(None), "ci");
        assert_eq!(known.author(text("Zoë")), "ci (by Zoë)");
        assert_eq!(Caller::anyone().author(text("Zoë")), "Zoë");
        assert_eq!(Caller::anyone().author(None), "http");
    }
}

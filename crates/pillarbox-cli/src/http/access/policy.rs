//! Which role each operation needs. The OpenAPI document says it, so the document and the checks can't differ.

use std::collections::HashMap;

use axum::http::Method;
use serde_json::Value;

use super::Role;

/// What an operation needs of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Any known caller.
    Caller,
    Role {
        role: Role,
        /// Whether it restricts its answer to the caller's scope.
        scoped: bool,
    },
    /// Nobody may use it: its description does not say who may.
    Closed,
}

pub(super) struct Policy {
    /// By path as in the router, then by method.
    paths: HashMap<String, HashMap<Method, Needs>>,
}

impl Policy {
    pub(super) fn of(document: &Value) -> Self {
        let mut paths = HashMap::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            let mut methods = HashMap::new();
            for (method, operation) in item.as_object().into_iter().flatten() {
                if let Ok(method) = Method::from_bytes(method.to_ascii_uppercase().as_bytes()) {
                    methods.insert(method, needs(operation));
                }
            }
            paths.insert(path.clone(), methods);
        }
        Self { paths }
    }

    /// `path` is the matched one; `None`: no route matches.
    pub(super) fn needs(&self, path: Option<&str>, method: &Method) -> Needs {
        let Some(path) = path else {
            // The answer is 404. Who may not look gets no list of what there is.
            return Needs::Caller;
        };
        let Some(methods) = self.paths.get(path) else {
            return Needs::Closed;
        };
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        // Other methods are answered with 405.
        methods.get(method).copied().unwrap_or(Needs::Caller)
    }
}

fn needs(operation: &Value) -> Needs {
    let Some(security) = operation["security"].as_array() else {
        return Needs::Closed;
    };
    let [requirement] = security.as_slice() else {
        return Needs::Closed;
    };
    let Some(words) = requirement["token"].as_array() else {
        let empty = requirement.as_object().is_some_and(serde_json::Map::is_empty);
        return if empty { Needs::Nothing } else { Needs::Closed };
    };
    let scoped = operation["x-scoped"] == true;
    match words.as_slice() {
        [] => Needs::Caller,
        [role] => {
            serde_json::from_value(role.clone()).map_or(Needs::Closed, |role| Needs::Role { role, scoped })
        }
        _ => Needs::Closed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operation_that_does_not_say_who_may_use_it_is_closed() {
        let with = |security: Value| needs(&json!({ "security": security }));
        assert_eq!(needs(&json!({})), Needs::Closed);
        assert_eq!(with(json!([])), Needs::Closed);
        assert_eq!(with(json!([{ "token": ["emperor"] }])), Needs::Closed);
        assert_eq!(with(json!([{ "other": [] }])), Needs::Closed);
        assert_eq!(with(json!([{}, { "token": ["read"] }])), Needs::Closed);
        assert_eq!(with(json!([{}])), Needs::Nothing);
        assert_eq!(with(json!([{ "token": [] }])), Needs::Caller);
        let role = Role::Operate;
        assert_eq!(
            with(json!([{ "token": ["operate"] }])),
            Needs::Role { role, scoped: false }
        );
    }

    #[test]
    fn a_path_that_the_document_lacks_is_closed_and_an_unknown_one_needs_a_caller() {
        let policy = Policy::of(&json!({ "paths": { "/a": { "get": { "security": [{}] } } } }));
        assert_eq!(policy.needs(Some("/a"), &Method::GET), Needs::Nothing);
        assert_eq!(policy.needs(Some("/a"), &Method::HEAD), Needs::Nothing);
        assert_eq!(policy.needs(Some("/a"), &Method::POST), Needs::Caller);
        assert_eq!(policy.needs(Some("/b"), &Method::GET), Needs::Closed);
        assert_eq!(policy.needs(None, &Method::GET), Needs::Caller);
    }
}

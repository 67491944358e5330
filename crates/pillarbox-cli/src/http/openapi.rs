//! The OpenAPI document of the API. The descriptions are beside the handlers; this adds what all of them
//! have in common.

mod event;

use axum::{
    Extension,
    body::Bytes,
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use utoipa::PartialSchema as _;

pub(super) use self::event::{EventBody, EventsBody};
use super::problem::ErrorBody;

/// The document as it is sent.
#[derive(Clone)]
pub(super) struct Served(Bytes);

impl Served {
    pub(super) fn new(document: &Value) -> Self {
        Self(document.to_string().into())
    }
}

/// This document
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    security(("token" = [])),
    extensions(("x-scoped" = json!(true))),
    responses((status = 200, description = "OpenAPI 3.1", body = Object))
)]
pub(super) async fn handler(Extension(document): Extension<Served>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document.0).into_response()
}

/// The whole document, as a relay with all its endpoints serves it.
pub(crate) fn document() -> Value {
    let (_, document) = super::paths::routes(true, true).split_for_parts();
    completed(document)
}

const ABOUT: &str = "Reads and writes the events of an outbox. docs/API.md explains it. \
    The roles of an operation are those of its security requirement; an operation with `x-scoped: true` can be used \
    with a token of one project or user, and then answers about that one only.";
const TOKEN: &str =
    "A static token or a JWT. On a loopback address without configured tokens, none is needed.";

/// The answers that come before an operation's own handler.
const PUBLIC: &[(&str, &str)] = &[
    (
        "400",
        "The request can't be understood, or it has not exactly one `Host`",
    ),
    ("403", "A page of another origin sent the request"),
    ("421", "The `Host` is not a name of this server"),
];
const GUARDED: &[(&str, &str)] = &[
    (
        "400",
        "The request can't be understood, or it has not exactly one `Host`",
    ),
    ("401", "There is no token, or it is not known"),
    (
        "403",
        "The token lacks the role or is for another project or user, or a page of another origin sent the request",
    ),
    ("421", "The `Host` is not a name of this server"),
    (
        "429",
        "Too many requests, or too many pending events; `Retry-After` says when to try again",
    ),
    ("500", "An error of Pillarbox or of its database"),
    (
        "503",
        "The database or the issuer of tokens is away, or too many others ask for the same; try again",
    ),
];

/// Adds the title, the tokens and the answers that every operation may give.
pub(super) fn completed(document: utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["info"] = json!({
        "title": "Pillarbox",
        "description": ABOUT,
        "version": env!("CARGO_PKG_VERSION"),
        "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
    });
    document["components"]["securitySchemes"]["token"] =
        json!({ "type": "http", "scheme": "bearer", "description": TOKEN });
    let error = serde_json::to_value(ErrorBody::schema());
    document["components"]["schemas"]["ErrorBody"] = error.unwrap_or_default();
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete(operation, method, path);
        }
    }
    document
}

fn complete(operation: &mut Value, method: &str, path: &str) {
    // The names of the functions are not unique.
    let words = path.split(|sign: char| !sign.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "v1").collect();
    let name = if words.is_empty() {
        "page".into()
    } else {
        words.join("_")
    };
    operation["operationId"] = format!("{method}_{name}").into();
    if let Some(operation) = operation.as_object_mut() {
        operation.remove("tags");
    }
    let guarded = operation["security"][0].get("token").is_some();
    for (status, description) in if guarded { GUARDED } else { PUBLIC } {
        let own = &mut operation["responses"][status];
        if own.is_null() {
            *own = json!({
                "description": description,
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/ErrorBody" } } },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// The code of the HTTP API, without its tests, and where it is.
    fn sources() -> Vec<(String, String)> {
        fn add_all(folder: &Path, sources: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match (path.is_dir(), path.file_name().unwrap().to_str().unwrap()) {
                    (true, _) => add_all(&path, sources),
                    (false, "tests.rs") => {}
                    (false, _) => add(&path, sources),
                }
            }
        }
        fn add(file: &Path, sources: &mut Vec<(String, String)>) {
            let Ok(text) = fs::read_to_string(file) else {
                return;
            };
            let code = text.split("#[cfg(test)]").next().unwrap();
            sources.push((file.display().to_string(), code.to_owned()));
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut sources = Vec::new();
        add(&source.join("http.rs"), &mut sources);
        add_all(&source.join("http"), &mut sources);
        sources
    }

    /// Every other way to add a path would leave it out of the document, and closed to everybody.
    #[test]
    fn every_path_of_the_router_has_a_description() {
        for (place, code) in sources() {
            for other in [".route(", ".route_service(", ".nest(", ".nest_service("] {
                assert!(
                    !code.contains(other),
                    "{place}: `{other}…)`: use `.routes(routes!(…))`"
                );
            }
        }
    }

    /// One of two types with the same name would replace the other in the document.
    #[test]
    fn each_described_type_has_its_own_name() {
        let mut names = BTreeSet::new();
        for (place, code) in sources() {
            for part in code.split("ToSchema)]").skip(1) {
                let declared = part.split_once("struct ").or_else(|| part.split_once("enum "));
                let name = declared.unwrap().1.split([' ', '<', '(', ';']).next().unwrap();
                assert!(names.insert(name.to_owned()), "{place}: another {name}");
            }
        }
        assert!(names.len() > 5, "{names:?}");
    }

    #[test]
    fn each_operation_names_its_role_and_describes_its_answers() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = format!("{method} {path}");
                assert!(operation["summary"].is_string(), "{name}");
                assert_eq!(operation["security"].as_array().unwrap().len(), 1, "{name}");
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    assert!(answer["content"].is_object(), "{name} {status}");
                    let kind = &answer["content"]["application/json"]["schema"];
                    assert!(!status.starts_with('4') || kind.is_object(), "{name} {status}");
                }
            }
        }
    }
}

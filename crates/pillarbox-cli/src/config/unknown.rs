//! Compares the tree with the JSON Schema: unknown keys and values of the wrong type, each with its place.

use std::path::Path;

use serde_json::Value;

use super::{
    Problem,
    show::word,
    tree::{Kind, Node},
};

/// Everything that does not match the schema.
pub(super) fn problems(tree: &Node, schema: &Value, file: Option<&Path>) -> Vec<Problem> {
    let mut walk = Walk {
        root: schema,
        file,
        problems: Vec::new(),
    };
    walk.node(tree, schema, "");
    walk.problems
}

/// The known word that is most similar to the given one, if any is similar.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

struct Walk<'a> {
    root: &'a Value,
    file: Option<&'a Path>,
    problems: Vec<Problem>,
}

impl<'a> Walk<'a> {
    fn node(&mut self, node: &Node, schema: &'a Value, path: &str) {
        let schema = self.resolved(schema);
        match &node.kind {
            Kind::Map(map) => {
                if !self.allowed(node, schema, path, "object") {
                    return;
                }
                for (key, value) in map {
                    let shown = word(key);
                    let below = if path.is_empty() {
                        shown.into_owned()
                    } else {
                        format!("{path}.{shown}")
                    };
                    match property(schema, key) {
                        Some(schema) => self.node(value, schema, &below),
                        None => self.unknown(value, schema, &below, key),
                    }
                }
                for key in strings(schema.get("required")) {
                    if !map.contains_key(key) {
                        self.problem(node, format!("`{path}` needs the key `{key}`"));
                    }
                }
            }
            Kind::List(list) => {
                if self.allowed(node, schema, path, "array")
                    && let Some(items) = schema.get("items")
                {
                    for (index, item) in list.iter().enumerate() {
                        self.node(item, items, &format!("{path}.{index}"));
                    }
                }
            }
            // A key without a value means its default.
            Kind::Scalar(Value::Null) => {}
            Kind::Scalar(value) => self.scalar(node, value, schema, path),
        }
    }

    fn scalar(&mut self, node: &Node, value: &Value, schema: &'a Value, path: &str) {
        let kind = match value {
            Value::Bool(_) => "boolean",
            Value::String(_) => "string",
            Value::Number(n) if n.is_f64() => "number",
            _ => "integer",
        };
        if !self.allowed(node, schema, path, kind) {
            return;
        }
        let known: Vec<&str> = strings(schema.get("enum")).chain(constants(schema)).collect();
        if let Some(given) = value
            .as_str()
            .filter(|given| !known.is_empty() && !known.contains(given))
        {
            let hint = nearest(given, known.iter().copied())
                .map_or_else(String::new, |near| format!(" Did you mean `{near}`?"));
            self.problem(
                node,
                format!(
                    "`{path}` is `{}`; it can be {}.{hint}",
                    word(given),
                    known.join(" or ")
                ),
            );
        }
        if let (Some(number), Some(minimum)) = (value.as_f64(), schema.get("minimum").and_then(Value::as_f64))
            && number < minimum
        {
            self.problem(node, format!("`{path}` is {value}; it must be {minimum} or more"));
        }
    }

    /// Whether a value of this type is allowed here; reports it if not. The value itself is not shown: it may
    /// be a secret.
    fn allowed(&mut self, node: &Node, schema: &Value, path: &str, kind: &str) -> bool {
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            list => strings(list).collect(),
        };
        let fits =
            types.is_empty() || types.contains(&kind) || (kind == "integer" && types.contains(&"number"));
        if !fits {
            let wanted: Vec<&str> = types.iter().filter(|t| **t != "null").map(|t| said(t)).collect();
            let place = if path.is_empty() {
                "the configuration".into()
            } else {
                format!("`{path}`")
            };
            self.problem(
                node,
                format!("{place} is {}; it must be {}", said(kind), wanted.join(" or ")),
            );
        }
        fits
    }

    fn unknown(&mut self, node: &Node, schema: &Value, path: &str, key: &str) {
        let known: Vec<&str> = schema
            .get("properties")
            .and_then(Value::as_object)
            .map(|map| map.keys().map(String::as_str).collect())
            .unwrap_or_default();
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => format!("Known here: {}.", known.join(", ")),
        };
        self.problem(node, format!("`{path}`: there is no key `{}`. {hint}", word(key)));
    }

    fn problem(&mut self, node: &Node, text: String) {
        self.problems.push(Problem {
            place: node.place(self.file),
            text,
        });
    }

    /// Follows `$ref`, and for an optional value takes the part that is not null.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let found = self.root.pointer(name.trim_start_matches('#'));
            return found.map_or(schema, |schema| self.resolved(schema));
        }
        let choices = schema.get("anyOf").and_then(Value::as_array);
        let choice = choices.and_then(|all| {
            all.iter()
                .find(|one| one.get("type") != Some(&Value::from("null")))
        });
        choice.map_or(schema, |schema| self.resolved(schema))
    }
}

fn property<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(key))
        .or_else(|| schema.get("additionalProperties").filter(|more| more.is_object()))
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// The words of an enum whose variants have descriptions: schemars writes these as `oneOf` of constants.
fn constants(schema: &Value) -> impl Iterator<Item = &str> {
    schema
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|one| one.get("const").and_then(Value::as_str))
}

fn said(kind: &str) -> &str {
    match kind {
        "object" => "a group of keys",
        "array" => "a list",
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}

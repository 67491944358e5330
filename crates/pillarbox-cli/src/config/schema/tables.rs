//! The tables of keys in docs/CONFIGURATION.md. They are generated from the JSON Schema, and the tests
//! compare them with the document. Each is between `<!-- keys: outbox.database -->` and `<!-- end -->`.

mod fields;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use serde_json::Value;

use self::fields::keys_of;
use super::{
    Backpressure, Command, Database, Dlq, EventLog, Http, Jwt, Layout, Monitoring, Outbox, PressureClass,
    Publisher, RateLimit, Reprocess, RetryPolicy, Route, Shape, Sink, Stream, Tls, Token, Topic, Tracing,
    Validation, Webhook, WebhookSink, dlq::Notifications, validation::Rule,
};
use crate::config::json_schema;

const REWRITE: &str = "PILLARBOX_WRITE_DOCS=1 cargo test --workspace --all-features --bins schema::tables";
const HEADER: &str = "| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end -->";

/// Read once, so that no test sees it half rewritten.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| read(&path()));

/// Every group of keys. The entries of a list or of a map of names have the path of the list or map.
fn groups() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("outbox", keys_of::<Outbox>()),
        ("outbox.backpressure", keys_of::<Backpressure>()),
        ("outbox.backpressure.classes", keys_of::<PressureClass>()),
        ("outbox.database", keys_of::<Database>()),
        ("outbox.dlq", keys_of::<Dlq>()),
        ("outbox.dlq.notifications", keys_of::<Notifications>()),
        ("outbox.dlq.notifications.commands", keys_of::<Command>()),
        ("outbox.dlq.notifications.webhooks", keys_of::<Webhook>()),
        ("outbox.dlq.reprocess", keys_of::<Reprocess>()),
        ("outbox.event_log", keys_of::<EventLog>()),
        ("outbox.http", keys_of::<Http>()),
        ("outbox.http.jwt", keys_of::<Jwt>()),
        ("outbox.http.rate_limit", keys_of::<RateLimit>()),
        ("outbox.http.tls", keys_of::<Tls>()),
        ("outbox.http.tokens", keys_of::<Token>()),
        ("outbox.layout", keys_of::<Layout>()),
        ("outbox.monitoring", keys_of::<Monitoring>()),
        ("outbox.monitoring.tracing", keys_of::<Tracing>()),
        ("outbox.publisher", keys_of::<Publisher>()),
        ("outbox.retry_policy", keys_of::<RetryPolicy>()),
        ("outbox.routes", keys_of::<Route>()),
        ("outbox.routes.shape", keys_of::<Shape>()),
        ("outbox.sinks", keys_of::<Sink>()),
        ("outbox.sinks.webhook", keys_of::<WebhookSink>()),
        ("outbox.streams", keys_of::<Stream>()),
        ("outbox.topics", keys_of::<Topic>()),
        ("outbox.validation", keys_of::<Validation>()),
        ("outbox.validation.rules", keys_of::<Rule>()),
    ])
}

/// The JSON Schema, to look up keys.
struct Schema(Value);

impl Schema {
    /// The group at a path, if there is one.
    fn group(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.0, |group, key| {
            self.keys_in(group.get("properties")?.get(key)?)
        })
    }

    /// The schema behind `$ref`, and for an optional value the part that is not null.
    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let target = schema.get("$ref").and_then(Value::as_str);
        let target = target.and_then(|name| self.0.pointer(name.trim_start_matches('#')));
        let choice = schema.get("anyOf").and_then(|choices| choices.get(0));
        target.or(choice).map_or(schema, |schema| self.resolved(schema))
    }

    /// The group of a value, or of its entries.
    fn keys_in<'a>(&'a self, schema: &'a Value) -> Option<&'a Value> {
        let schema = self.resolved(schema);
        if schema.get("properties").is_some() {
            return Some(schema);
        }
        let entries = schema.get("items").or_else(|| schema.get("additionalProperties"));
        entries.and_then(|entries| self.keys_in(entries))
    }

    /// Every key below a group with its path, and whether it is a group itself.
    fn keys_below(&self, path: &str, found: &mut BTreeMap<String, bool>) {
        let group = self.group(path).unwrap();
        for (key, schema) in group["properties"].as_object().unwrap() {
            let path = format!("{path}.{key}");
            let is_group = self.keys_in(schema).is_some();
            found.insert(path.clone(), is_group);
            if is_group {
                self.keys_below(&path, found);
            }
        }
    }

    fn every_key(&self) -> BTreeMap<String, bool> {
        let mut found = BTreeMap::from([("outbox".to_owned(), true)]);
        self.keys_below("outbox", &mut found);
        found
    }

    /// One table. A key that has its own section in the document links to it.
    fn table(&self, path: &str, keys: &[&str], document: &str) -> String {
        let group = self.group(path).unwrap();
        let required = group.get("required").and_then(Value::as_array);
        let mut table = HEADER.to_owned();
        for key in keys {
            let schema = &group["properties"][*key];
            let below = format!("{path}.{key}");
            let name = match document.contains(&format!("# `{below}`\n")) {
                true => format!("[`{key}`](#{})", below.replace('.', "")),
                false => format!("`{key}`"),
            };
            let default = match required.is_some_and(|all| all.iter().any(|one| one == key)) {
                true => "required".to_owned(),
                false => self.default_of(schema),
            };
            let meaning = schema["description"].as_str().unwrap_or_default();
            assert!(!meaning.is_empty(), "`{below}` has no doc comment");
            assert!(
                !meaning.contains("\n\n"),
                "`{below}`: a table has room for one paragraph"
            );
            let cells = [name, self.type_of(schema), default, meaning.replace('\n', " ")];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            table.push_str(&format!("| {} |\n", cells.join(" | ")));
        }
        table
    }

    fn type_of(&self, schema: &Value) -> String {
        let schema = self.resolved(schema);
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            let words: Vec<String> = words.iter().filter_map(Value::as_str).map(code).collect();
            return words.join(", ");
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => &kinds[0],
            kind => kind,
        };
        let word = match kind.as_str() {
            Some("string") => "text",
            Some("integer" | "number") => "number",
            Some("boolean") => "true or false",
            Some("array") => "list",
            Some("object") => "group",
            _ => panic!("no word for the type of {schema}"),
        };
        word.to_owned()
    }

    fn default_of(&self, schema: &Value) -> String {
        if let Some(text) = schema.get("x-default").and_then(Value::as_str) {
            return text.to_owned();
        }
        match &schema["default"] {
            // The table of the group has the defaults.
            Value::Object(_) if self.resolved(schema).get("properties").is_some() => String::new(),
            Value::Null => "none".into(),
            Value::Array(list) if list.is_empty() => "none".into(),
            Value::Object(map) if map.is_empty() => "none".into(),
            Value::String(text) => code(text),
            Value::Array(list) => {
                let values: Vec<String> = list.iter().map(Value::to_string).collect();
                code(&format!("[{}]", values.join(", ")))
            }
            plain => plain.to_string(),
        }
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// The document with the generated tables, and the groups of these tables.
fn rewritten(document: &str, schema: &Schema) -> (String, Vec<String>) {
    let groups = groups();
    let mut parts = document.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut tables = Vec::new();
    for part in parts {
        let (path, rest) = part.split_once(" -->\n").expect("`<!-- keys: … -->` is a line");
        let (_, rest) = rest
            .split_once(END)
            .unwrap_or_else(|| panic!("the table of `{path}` has no `{END}`"));
        let keys = groups.get(path).unwrap_or_else(|| {
            panic!("docs/CONFIGURATION.md has a table of `{path}`: there is no such group")
        });
        let table = schema.table(path, keys, document);
        text.push_str(&format!("{BEGIN}{path} -->\n{table}{END}{rest}"));
        tables.push(path.to_owned());
    }
    (text, tables)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn path() -> PathBuf {
    root().join("docs/CONFIGURATION.md")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_document_has_the_keys_types_defaults_and_meanings_of_the_schema() {
    let document = &*DOCUMENT;
    let (wanted, _) = rewritten(document, &Schema(json_schema()));
    if std::env::var_os("PILLARBOX_WRITE_DOCS").is_some() {
        fs::write(path(), wanted).unwrap();
        return;
    }
    let differs = document
        .lines()
        .zip(wanted.lines())
        .find(|(is, wanted)| is != wanted);
    if let Some((is, wanted)) = differs {
        panic!(
            "docs/CONFIGURATION.md is not what the schema says. Run: {REWRITE}\n it has: {is}\n wanted: {wanted}"
        );
    }
    assert!(
        *document == wanted,
        "docs/CONFIGURATION.md is not what the schema says. Run: {REWRITE}"
    );
}

#[test]
fn every_key_is_in_exactly_one_table() {
    let (schema, groups) = (Schema(json_schema()), groups());
    let every = schema.every_key();
    let in_schema: BTreeSet<&str> = every
        .iter()
        .filter(|(_, group)| **group)
        .map(|(path, _)| &**path)
        .collect();
    let listed: BTreeSet<&str> = groups.keys().copied().collect();
    assert_eq!(
        in_schema, listed,
        "the groups of the schema, and those listed in `groups`"
    );
    for (path, keys) in &groups {
        let known: BTreeSet<&str> = schema.group(path).unwrap()["properties"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(known, keys.iter().copied().collect(), "the keys of `{path}`");
    }
    let (wanted, mut tables) = rewritten(&DOCUMENT, &schema);
    tables.sort();
    assert!(
        tables.iter().eq(groups.keys()),
        "each group has one table in docs/CONFIGURATION.md, after a line `{BEGIN}<group> -->`.\n tables: {tables:?}\n groups: {:?}",
        groups.keys()
    );
    assert_eq!(
        wanted.matches("| key").count(),
        tables.len(),
        "a table of keys is written by hand: it belongs between `{BEGIN}<group> -->` and `{END}`"
    );
}

#[test]
fn every_key_that_a_document_names_exists() {
    let every = Schema(json_schema()).every_key();
    let mut documents = vec![root().join("README.md")];
    let docs = fs::read_dir(root().join("docs")).unwrap();
    documents.extend(docs.map(|entry| entry.unwrap().path()));
    for path in documents
        .iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "md"))
    {
        let text = read(path);
        // Every second part is between backticks.
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = word.starts_with("outbox.")
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.'));
            assert!(
                !is_path || every.contains_key(word),
                "{} names `{word}`: there is no such key",
                path.display()
            );
        }
    }
}

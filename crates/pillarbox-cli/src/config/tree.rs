//! A configuration before it has types. Every value knows where it was written.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Line(u64),
    Variable(String),
    Flag(&'static str),
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Map(BTreeMap<String, Node>),
    List(Vec<Node>),
    Scalar(Value),
}

impl Node {
    pub(super) fn empty() -> Self {
        Self {
            origin: Origin::Line(1),
            kind: Kind::Map(BTreeMap::new()),
        }
    }

    /// The beginning of a message: `file:line`, `the variable X` or `the flag --x`.
    pub(super) fn place(&self, file: Option<&Path>) -> String {
        match (&self.origin, file) {
            (Origin::Variable(name), _) => format!("in the environment variable {name}"),
            (Origin::Flag(name), _) => format!("in {name}"),
            (Origin::Line(line), Some(file)) => format!("{}:{line}", file.display()),
            (Origin::Line(_), None) => "in the configuration".into(),
        }
    }

    /// The node at a path such as `outbox.routes.0.sink`, or the nearest existing one above it.
    pub(super) fn nearest(&self, path: &str) -> &Node {
        let mut node = self;
        for step in path.split('.') {
            let next = match &node.kind {
                Kind::Map(map) => map.get(step),
                Kind::List(list) => step.parse::<usize>().ok().and_then(|n| list.get(n)),
                Kind::Scalar(_) => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    pub(super) fn into_json(self) -> Value {
        match self.kind {
            Kind::Map(map) => Value::Object(map.into_iter().map(|(k, v)| (k, v.into_json())).collect()),
            Kind::List(list) => Value::Array(list.into_iter().map(Node::into_json).collect()),
            Kind::Scalar(value) => value,
        }
    }
}

impl From<Spanned<Kind>> for Node {
    fn from(spanned: Spanned<Kind>) -> Self {
        Self {
            origin: Origin::Line(spanned.referenced.line()),
            kind: spanned.value,
        }
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        Kind::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Kind, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Kind>>()? {
            list.push(item.into());
        }
        Ok(Kind::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = access.next_entry::<Spanned<String>, Spanned<Kind>>()? {
            // Use the key's line: a group begins a line below it.
            let origin = Origin::Line(key.referenced.line());
            let kind = value.value;
            map.insert(key.value, Node { origin, kind });
        }
        Ok(Kind::Map(map))
    }
}

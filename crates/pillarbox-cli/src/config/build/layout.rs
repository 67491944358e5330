//! The layout of a table that exists.

use std::collections::{BTreeMap, BTreeSet};

use pillarbox_relay::layout::{
    Field, Layout, Record, Source, States, Words,
    presets::{PRESETS, preset},
};

use super::Problems;
use crate::config::{
    schema::{self, Word},
    show::word,
    unknown::nearest,
};

/// A word that means null.
const NULL: &str = "is null";

pub(super) fn layout(outbox: &schema::Outbox, problems: &mut Problems) -> Option<Layout> {
    let keys = outbox.layout.as_ref()?;
    let before = problems.len();
    let table = &outbox.database.table_name;
    let mut layout = match &keys.preset {
        None => Layout {
            table: table.clone(),
            fields: BTreeMap::new(),
            states: States::default(),
            records: BTreeMap::new(),
            carried: BTreeSet::new(),
            delete_published: false,
        },
        Some(name) => match preset(name) {
            Some(preset) => preset.layout(table),
            None => {
                let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
                problems.push(unknown("outbox.layout.preset", name, &known));
                return None;
            }
        },
    };
    for (name, source) in &keys.fields {
        let Some(field) = Field::ALL.into_iter().find(|field| field.name() == name) else {
            problems.push(unknown(
                "outbox.layout.fields",
                name,
                &Field::ALL.map(Field::name),
            ));
            continue;
        };
        match Source::parse(source) {
            Ok(source) => drop(layout.fields.insert(field, source)),
            Err(error) => problems.push((format!("outbox.layout.fields.{name}"), error.to_string())),
        }
    }
    for (name, column) in &keys.records {
        match Record::ALL.into_iter().find(|record| record.name() == name) {
            Some(record) => drop(layout.records.insert(record, column.clone())),
            None => problems.push(unknown(
                "outbox.layout.records",
                name,
                &Record::ALL.map(Record::name),
            )),
        }
    }
    states(keys, &mut layout.states, problems);
    layout.carried.extend(keys.carried.iter().cloned());
    layout.delete_published |= keys.delete_published;
    if problems.len() == before
        && let Err(error) = layout.check()
    {
        problems.push(("outbox.layout".into(), error.to_string()));
    }
    (problems.len() == before).then_some(layout)
}

fn states(keys: &schema::Layout, states: &mut States, problems: &mut Problems) {
    for (name, columns) in &keys.states {
        let state = match name.as_str() {
            "pending" => &mut states.pending,
            "failed" => &mut states.failed,
            "processing" => &mut states.processing,
            "published" => &mut states.published,
            "dead" => &mut states.dead,
            _ => {
                problems.push(unknown(
                    "outbox.layout.states",
                    name,
                    &["pending", "failed", "processing", "published", "dead"],
                ));
                continue;
            }
        };
        let is_null = |Word(word): &Word| (word != NULL).then(|| word.clone());
        *state = columns
            .iter()
            .map(|(column, word)| (column.clone(), is_null(word)))
            .collect::<Words>();
    }
}

/// The problem of a name that is not one of these.
pub(super) fn unknown(key: &str, name: &str, known: &[&str]) -> (String, String) {
    let hint = nearest(name, known.iter().copied())
        .map_or_else(String::new, |near| format!(" Did you mean `{near}`?"));
    (
        key.to_owned(),
        format!(
            "`{}` is not known; it can be {}.{hint}",
            word(name),
            known.join(", ")
        ),
    )
}

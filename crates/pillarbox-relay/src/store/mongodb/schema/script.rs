//! The migration as a script, for users who run their own migrations.

use std::fmt::Write;

use pillarbox::table::Tables;

use super::{
    super::connection::{RETIRED, names},
    VERSION,
    index::{Index, indexes, retired},
    validator,
};

/// A script for mongosh that does the same, in the database it is connected to unless the tables name another.
pub(in crate::store::mongodb) fn script(tables: &Tables) -> String {
    let mut script = format!(
        "// The outbox, version {VERSION}. Run it with mongosh on the primary; running it again changes nothing.\n",
    );
    for (name, collection) in names(tables) {
        let (database, _) = place(&collection);
        let collection = js(collection.rsplit('.').next().unwrap_or(&collection));
        let there = format!("{database}.getCollectionNames().includes({collection})");
        let create = format!("{database}.createCollection({collection});");
        let _ = writeln!(script, "\nif (!{there}) {create}");
        if name == "events" {
            let validator = js(&validator());
            let command =
                format!("{{ collMod: {collection}, validator: {validator}, validationLevel: \"moderate\" }}");
            let _ = writeln!(script, "{database}.runCommand({command});");
        }
        let collection = format!("{database}.getCollection({collection})");
        for index in indexes(name) {
            let (keys, options) = (js(&index.keys), js(&index.options()));
            let _ = writeln!(script, "{collection}.createIndex({keys}, {options});");
        }
        for index in retired(name) {
            let there = format!(
                "{collection}.getIndexes().some(index => index.name === {})",
                js(index)
            );
            let _ = writeln!(script, "if ({there}) {collection}.dropIndex({});", js(index));
        }
        if name == "lanes" {
            let fields = "{ owner: null, epoch: Long(0), lease_until: new Date(0), low_mark: Long(0) }";
            let update = format!("{{ _id: Int32(n) }}, {{ $setOnInsert: {fields} }}, {{ upsert: true }}");
            let _ = writeln!(
                script,
                "for (let n = 0; n < 256; n++) {collection}.updateOne({update});"
            );
        }
        if name == "records" {
            for suffix in RETIRED {
                let (_, retired) = place(&tables.name_beside(suffix));
                let _ = writeln!(script, "{retired}.drop();");
            }
        }
        if name == "meta" {
            let set = format!("{{ $set: {{ value: Int32({VERSION}) }} }}");
            let update = format!("{{ _id: \"schema_version\" }}, {set}, {{ upsert: true }}");
            let _ = writeln!(script, "{collection}.updateOne({update});");
        }
    }
    script
}

/// A database and a collection in it, as mongosh names them.
fn place(name: &str) -> (String, String) {
    let (database, name) = match name.split_once('.') {
        Some((database, name)) => (format!("db.getSiblingDB({})", js(database)), name),
        None => ("db".to_owned(), name),
    };
    let collection = format!("{database}.getCollection({})", js(name));
    (database, collection)
}

/// Names, numbers and plain documents are the same in JSON and in JavaScript.
fn js<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// One index alone, as a line for mongosh.
pub(in crate::store::mongodb) fn index_script(tables: &Tables, index: &Index) -> String {
    let (_, collection) = place(tables.name());
    format!(
        "{collection}.createIndex({}, {});",
        js(&index.keys),
        js(&index.options())
    )
}

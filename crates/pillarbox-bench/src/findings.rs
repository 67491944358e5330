//! The result of a measurement, for programs and for people.

use anyhow::Result;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// The result of a measurement.
pub struct Findings {
    /// The report for programs.
    pub json: Box<RawValue>,
    /// The header of the rows; empty if they need none.
    pub header: &'static [&'static str],
    /// The report for people.
    pub rows: Vec<Vec<String>>,
    /// No event was lost, and each key arrived in order.
    pub promises_kept: bool,
}

impl Findings {
    /// Findings in rows of a name and a value.
    pub(super) fn new(report: &impl Serialize, rows: Rows, promises_kept: bool) -> Result<Self> {
        Ok(Self {
            json: to_raw_value(report)?,
            header: &[],
            rows: rows.0,
            promises_kept,
        })
    }
}

/// Rows of a name and a value.
#[derive(Default)]
pub(super) struct Rows(Vec<Vec<String>>);

impl Rows {
    pub(super) fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push(vec![name.into(), value.into()]);
    }
}

/// A count that only some sinks provide.
pub(super) fn known(count: Option<u64>) -> String {
    count.map_or_else(|| "not known here".to_owned(), |count| count.to_string())
}

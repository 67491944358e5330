//! What relays report about themselves, kept small enough to be read by people.

const LINES_MAX: usize = 20;
const CHARS_MAX: usize = 500;

/// The first lines, each cut where it is too long, without what would break a line or a text in a database.
pub(crate) fn kept(troubles: &[String]) -> Vec<String> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line = |line: &String| line.chars().take(CHARS_MAX).map(plain).collect();
    troubles.iter().take(LINES_MAX).map(line).collect()
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn to_json(troubles: &[String]) -> String {
    serde_json::Value::from(kept(troubles)).to_string()
}

/// What is not a list of texts is none: it is for looking at.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn from_json(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_default()
}

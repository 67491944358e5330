//! docs/LOGS.md names every line that a relay can log at `info` or above, and no other.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where lines of a running relay come from.
const SOURCES: [&str; 4] = [
    "pillarbox-relay/src",
    "pillarbox-cli/src/http",
    "pillarbox-cli/src/command/run",
    "pillarbox-cli/src/command/run.rs",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files below a path, without those of tests.
fn sources(path: &Path, found: &mut Vec<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            sources(&entry.unwrap().path(), found);
        }
        return;
    }
    let name = path.file_name().unwrap().to_str().unwrap();
    if name.ends_with(".rs") && !matches!(name, "tests.rs" | "fuzz.rs") {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        found.push(code.to_owned());
    }
}

/// The last string among the arguments of a macro that is not the value of a field. `rest` begins behind its bracket.
fn message(rest: &str) -> Option<String> {
    let mut characters = rest.char_indices();
    let (mut depth, mut before, mut last) = (1, ',', None);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let text = string(&rest[at + 1..]);
                // Skip it, with its closing quote.
                let end = at + 1 + text.len();
                characters.by_ref().find(|(at, _)| *at == end);
                if depth == 1 && before == ',' {
                    last = Some(text);
                }
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if !character.is_whitespace() {
            before = character;
        }
    }
    Some(plain(&unfolded(last?)))
}

/// Up to the closing quote.
fn string(rest: &str) -> &str {
    let mut escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    &rest[..end.expect("a string has an end")]
}

/// Without line breaks that a backslash hides.
fn unfolded(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |all, line| all + line.trim_start())
}

/// What is filled in becomes `…`; the beginning is enough. Code marks are left out.
fn plain(message: &str) -> String {
    let mut plain = String::new();
    let mut parts = message.split('{');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push('…');
        plain.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    plain.replace('`', "")
}

fn logged() -> Vec<String> {
    let mut files = Vec::new();
    for path in SOURCES {
        sources(&crates().join(path), &mut files);
    }
    let mut messages = Vec::new();
    for code in &files {
        for level in ["info", "warn", "error"] {
            let call = format!("tracing::{level}!(");
            let mut calls = code.split(&call);
            calls.next();
            messages.extend(calls.filter_map(message));
        }
    }
    // Some texts are made elsewhere.
    messages.retain(|message| message != "…");
    messages.sort();
    messages.dedup();
    messages
}

#[test]
fn every_line_of_a_relay_is_documented() {
    let document = include_str!("../../../../../docs/LOGS.md").replace('`', "");
    let messages = logged();
    assert!(messages.len() > 60, "found only {messages:?}");
    let begins = |message: &str| message.split(": it does not keep").next().unwrap().to_owned();
    let missing: Vec<&String> = messages
        .iter()
        .filter(|message| !document.contains(&begins(message)))
        .collect();
    assert!(missing.is_empty(), "docs/LOGS.md does not have {missing:#?}");
}

#[test]
fn every_documented_line_exists() {
    let mut files = Vec::new();
    for path in SOURCES {
        sources(&crates().join(path), &mut files);
    }
    let code: String = files.iter().map(|code| unfolded(code).replace('`', "")).collect();
    let document = include_str!("../../../../../docs/LOGS.md");
    let (_, lines) = document.split_once("## Lines about the relay").unwrap();
    let rows = lines
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split("` |").next());
    let documented: Vec<&str> = rows.flat_map(|row| row.split("`, `")).collect();
    assert!(documented.len() > 60, "found only {documented:?}");
    let unknown: Vec<&&str> = documented
        .iter()
        .filter(|message| message.split('…').any(|part| !code.contains(part)))
        .collect();
    assert!(
        unknown.is_empty(),
        "docs/LOGS.md has lines that do not exist: {unknown:#?}"
    );
}

#[test]
fn a_message_is_found_among_fields_and_nested_calls() {
    for (call, expected) in [
        (r#""plain")"#, Some("plain")),
        (
            r#"why = error.chain(), a = f("x"), "it \"said\" no";)"#,
            Some("it \\\"said\\\" no"),
        ),
        (r#"sink = "s", count = list.join(", "), "last")"#, Some("last")),
        (
            "\n  why,\n  \"two \\\n      lines {why}\"\n)",
            Some("two lines …"),
        ),
        (r#"sink = "only a field")"#, None),
    ] {
        assert_eq!(message(call).as_deref(), expected, "{call}");
    }
}

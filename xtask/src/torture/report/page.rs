//! The report as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{Finished, Machine, Run, Summary};

const OPENING: &str = "\
# Reliability

`cargo xtask torture report` runs the storms and writes this page. In a storm, three relays of the real
binary, producers and real servers work while everything that can fail fails at random, several
things at once: a fault begins while others last, and while the system recovers from earlier ones.
Every 20 seconds all faults end, and everything that was committed must arrive before the next storm
begins. [TESTING.md](TESTING.md#storms) says what fails and how it is judged.
";

const COLUMNS: &str = "
Every event is judged at the receiver. *In doubt*: the answer to a commit was lost, and the database
said afterwards what became of the transaction. *Lost*: committed, and neither received nor waiting.
*Undelivered*: still waiting when the time was over. *Not committed*: received although rolled back.
*Charged*: events that a fault cost an attempt. *Copies*: JetStream and a consumer's inbox must drop
them; Kafka drops none of another producer, so there they are expected, and in brackets.
";

pub(super) fn page(results: &[Finished], run: &Run, machine: &Machine) -> String {
    let summaries: Vec<_> = results
        .iter()
        .filter_map(|result| result.summary.as_ref())
        .collect();
    let mut text = OPENING.to_owned();
    text.push_str("\n## Result\n");
    text.push_str(&verdicts(results));
    text.push_str(COLUMNS);
    text.push_str(&broken(results));
    text.push_str("\n## Faults\n");
    text.push_str(&overlap(&summaries));
    text.push_str(&kinds(&summaries));
    text.push_str("\n## The run\n");
    text.push_str(&circumstances(&summaries, run, machine));
    text.push_str("\n## Not covered\n");
    let mut not_covered: BTreeSet<&str> = summaries
        .iter()
        .flat_map(|summary| summary.not_covered.iter().map(String::as_str))
        .collect();
    not_covered.insert("Operating systems that crash: servers and relays are killed, the machine is not");
    for words in not_covered {
        let _ = writeln!(text, "- {words}");
    }
    wrapped(&text)
}

/// Markdown wraps at 100 columns: the lines of a paragraph are joined and wrapped again.
fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut paragraph = String::new();
    for line in text.lines() {
        if !line.is_empty() && !line.starts_with(['|', '#', '-', ' ']) {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
            continue;
        }
        if !paragraph.is_empty() {
            wrap(&mut out, &std::mem::take(&mut paragraph));
        }
        wrap(&mut out, line);
    }
    if !paragraph.is_empty() {
        wrap(&mut out, &paragraph);
    }
    out
}

/// Appends a paragraph, an item of a list, or a row of a table, which stays one line.
fn wrap(out: &mut String, text: &str) {
    const COLUMNS_MAX: usize = 100;
    if text.starts_with('|') || text.chars().count() <= COLUMNS_MAX {
        out.push_str(text);
        out.push('\n');
        return;
    }
    let indent = if text.starts_with("- ") { "  " } else { "" };
    let mut current = String::new();
    for word in text.split(' ') {
        if current.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            let _ = writeln!(out, "{current}");
            current = indent.to_owned();
        } else if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    let _ = writeln!(out, "{current}");
}

fn verdicts(results: &[Finished]) -> String {
    let bound = results
        .iter()
        .find_map(|result| result.summary.as_ref())
        .map_or(0, |summary| summary.bound_ms);
    let mut text = format!(
        "| storm | result | faults | committed | rolled back | in doubt | lost | undelivered | not committed | out of order | copies | dead | charged | last fault to last delivery (bound: {} s) |\n",
        bound / 1_000
    );
    text.push_str("| --- | --- |");
    text.push_str(&" ---: |".repeat(12));
    text.push('\n');
    for result in results {
        let word = if result.passed { "passed" } else { "**failed**" };
        match &result.summary {
            None => {
                let _ = writeln!(
                    text,
                    "| {} | {word}, without a summary |{}",
                    result.name,
                    " |".repeat(12)
                );
            }
            Some(summary) => {
                let _ = writeln!(text, "| {} | {word} | {} |", summary.title, numbers(summary));
            }
        }
    }
    text
}

fn numbers(summary: &Summary) -> String {
    let copies = if summary.copies_are_dropped {
        count(summary.copies as u64)
    } else {
        format!("({})", count(summary.copies as u64))
    };
    [
        count(summary.faults.values().sum()),
        count(summary.committed as u64),
        count(summary.rolled_back as u64),
        count(summary.in_doubt as u64),
        count(summary.lost as u64),
        count(summary.undelivered as u64),
        count(summary.never_committed_but_seen as u64),
        count(summary.order_violations as u64),
        copies,
        count(summary.dead),
        count(summary.charged),
        format!("{:.1} s", summary.stall_ms as f64 / 1_000.0),
    ]
    .join(" | ")
}

fn broken(results: &[Finished]) -> String {
    let mut text = String::new();
    for result in results.iter().filter(|result| !result.passed) {
        let title = result
            .summary
            .as_ref()
            .map_or(&result.name, |summary| &summary.title);
        let _ = writeln!(text, "\n### Failed: {title}");
        let broken = result.summary.iter().flat_map(|summary| &summary.broken);
        let mut said = false;
        for words in broken {
            let _ = writeln!(text, "- {}", words.replace('\n', "\n  "));
            said = true;
        }
        if !said {
            text.push_str("- The campaign ended early; its output says why.\n");
        }
    }
    text
}

fn overlap(summaries: &[&Summary]) -> String {
    let total: u64 = summaries.iter().flat_map(|summary| summary.faults.values()).sum();
    let means = summaries.iter().map(|summary| summary.faults_at_once_mean);
    let mean = means.sum::<f64>() / (summaries.len().max(1) as f64);
    let most = summaries.iter().map(|summary| summary.faults_at_once_max).max();
    let exits: u64 = summaries.iter().map(|summary| summary.relay_exits).sum();
    let rounds: u64 = summaries.iter().map(|summary| summary.rounds).sum();
    format!(
        "{} faults in {rounds} storms; {mean:.1} in progress at a time on average, {} at most. Relays that \
         ended without having been told to: {exits}.\n\n",
        count(total),
        most.unwrap_or_default()
    )
}

/// A row for each kind, a column for each storm.
fn kinds(summaries: &[&Summary]) -> String {
    let mut rows: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (column, summary) in summaries.iter().enumerate() {
        for (kind, times) in &summary.faults {
            rows.entry(kind).or_insert_with(|| vec![0; summaries.len()])[column] = *times;
        }
    }
    let titles: Vec<_> = summaries.iter().map(|summary| summary.title.as_str()).collect();
    let mut text = format!(
        "| fault | {} |\n| --- |{}\n",
        titles.join(" | "),
        " ---: |".repeat(titles.len())
    );
    for (kind, times) in rows {
        let times: Vec<_> = times
            .iter()
            .map(|times| if *times == 0 { String::new() } else { count(*times) })
            .collect();
        let _ = writeln!(text, "| {kind} | {} |", times.join(" | "));
    }
    text
}

fn circumstances(summaries: &[&Summary], run: &Run, machine: &Machine) -> String {
    let versions: BTreeSet<&str> = summaries
        .iter()
        .flat_map(|summary| summary.versions.iter().map(String::as_str))
        .collect();
    let (build, debug) = match run.debug {
        true => ("a debug build", " --debug"),
        false => ("a release build", ""),
    };
    format!(
        "{}, {} s for each storm, {build}, {} cores and {} GiB of memory shared by everything.\n{}.\n\n\
         Repeat it: `cargo xtask torture report --seconds {} --seed {}{debug}`. \
         A seed repeats what is decided, not how the machine schedules it.\n",
        machine.date,
        run.seconds,
        machine.cores,
        machine.memory_gib,
        versions.into_iter().collect::<Vec<_>>().join(", "),
        run.seconds,
        run.seed
    )
}

/// With separators: 12,345.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(passed: bool, summary: Option<Summary>) -> Finished {
        Finished {
            name: "storm_from_here_to_there".to_owned(),
            summary,
            passed,
        }
    }

    fn summary() -> Summary {
        Summary {
            title: "Here to There".to_owned(),
            faults: [("relay killed".to_owned(), 1_234)].into(),
            committed: 5,
            stall_ms: 1_540,
            bound_ms: 30_000,
            not_covered: vec!["the moon".to_owned()],
            ..Summary::default()
        }
    }

    fn text(results: &[Finished]) -> String {
        let run = Run {
            seed: 7,
            seconds: 60,
            debug: false,
        };
        let machine = Machine {
            cores: 2,
            memory_gib: 8,
            date: "2026-01-02".to_owned(),
        };
        page(results, &run, &machine)
    }

    #[test]
    fn the_page_has_the_figures_the_bound_the_seed_and_the_gaps() {
        let text = text(&[finished(true, Some(summary()))]);
        for words in [
            "| Here to There | passed | 1,234 | 5 |",
            "(bound: 30 s)",
            "| 1.5 s |",
            "| relay killed | 1,234 |",
            "--seconds 60 --seed 7",
            "- the moon",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }

    #[test]
    fn long_lines_are_wrapped_and_tables_are_not() {
        let long = format!("- {}", "word ".repeat(30).trim_end());
        let table = format!("| {} |", "word ".repeat(30));
        let text = wrapped(&format!("{long}\n{table}\nshort\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].len() <= 100 && lines[1].starts_with("  word"), "{text}");
        assert_eq!(lines[2..], [table.as_str(), "short"]);
    }

    #[test]
    fn the_lines_of_a_paragraph_are_joined_before_they_are_wrapped() {
        let line = "word ".repeat(15);
        let line = line.trim_end();
        let text = wrapped(&format!("# Title\n\n{line}\n{line}\n\nlast\n"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[2].len() > line.len() && lines[2].len() <= 100, "{text}");
        assert_eq!((lines[0], lines[4], lines[5]), ("# Title", "", "last"));
    }

    #[test]
    fn a_campaign_that_failed_is_shown_as_failed_even_without_a_summary() {
        let broken = Summary {
            broken: vec!["3 events are dead".to_owned()],
            ..summary()
        };
        let text = text(&[finished(false, Some(broken)), finished(false, None)]);
        assert!(text.contains("| Here to There | **failed** |"), "{text}");
        assert!(text.contains("- 3 events are dead"), "{text}");
        assert!(
            text.contains("| storm_from_here_to_there | **failed**, without a summary |"),
            "{text}"
        );
    }
}

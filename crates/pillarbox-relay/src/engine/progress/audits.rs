//! What the audits of the sinks have found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use pillarbox::EventId;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    audit::LOST_IDS_MAX,
    sink::audit::{AuditProblem, Audited},
};

/// For this long after the latest loss, the relay is unhealthy.
const LOSS_SHOWN: Duration = Duration::from_secs(3_600);

/// So many problems are shown.
const PROBLEMS_MAX: usize = 5;

/// By sink.
#[derive(Debug, Default)]
pub(crate) struct Audits(Mutex<BTreeMap<String, Record>>);

#[derive(Debug, Default)]
struct Record {
    /// Since the start, except for `loss`.
    totals: AuditReport,
    loss_at: Option<Instant>,
    /// The streams and topics that the latest audit could not read.
    unreadable: BTreeSet<Option<String>>,
}

/// The audits of a sink since the relay's start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditReport {
    /// Events that were looked up. `expired` and `lost` are among them.
    pub checked: u64,
    /// Gone, although no limit of the sink explains it.
    pub lost: u64,
    /// Found a second time close by.
    pub copies: u64,
    /// Removed by the sink's own limits.
    pub expired: u64,
    /// Audits that could not look up everything.
    pub failed: u64,
    /// What the latest audit could not look up, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The events that were lost lately. It is forgotten an hour after the latest loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// When the first one was noticed, to the second.
    pub since: Timestamp,
    pub events: u64,
    /// The first ones.
    pub ids: Vec<EventId>,
}

impl Audits {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, sink: &str) {
        self.lock().entry(sink.to_owned()).or_default();
    }

    /// Returns the problems that the audit before did not have.
    pub(crate) fn found<'a>(
        &self,
        sink: &str,
        audited: &'a Audited,
        now: Timestamp,
    ) -> Vec<&'a AuditProblem> {
        let mut records = self.lock();
        let record = records.entry(sink.to_owned()).or_default();
        record.forget_old_loss();
        let (totals, lost) = (&mut record.totals, audited.lost.len() as u64);
        totals.checked += audited.checked;
        totals.copies += audited.copies;
        totals.expired += audited.expired;
        totals.lost += lost;
        totals.failed += u64::from(!audited.problems.is_empty());
        totals.problem = shown(&audited.problems);
        if lost > 0 {
            let loss = totals.loss.get_or_insert_with(|| Loss {
                since: now,
                events: 0,
                ids: Vec::new(),
            });
            loss.events += lost;
            let room = LOST_IDS_MAX - loss.ids.len();
            loss.ids.extend(audited.lost.iter().take(room).cloned());
            record.loss_at = Some(Instant::now());
        }
        let places = audited.problems.iter().map(|problem| problem.place.clone());
        let before = std::mem::replace(&mut record.unreadable, places.collect());
        let problems = audited.problems.iter();
        problems
            .filter(|problem| !before.contains(&problem.place))
            .collect()
    }

    pub(super) fn report(&self) -> BTreeMap<String, AuditReport> {
        let mut records = self.lock();
        let report = |(sink, record): (&String, &mut Record)| {
            record.forget_old_loss();
            (sink.clone(), record.totals.clone())
        };
        records.iter_mut().map(report).collect()
    }
}

/// The first ones, for people.
fn shown(problems: &[AuditProblem]) -> Option<String> {
    let first: Vec<&str> = problems.iter().take(PROBLEMS_MAX).map(|it| &*it.why).collect();
    let first = (!first.is_empty()).then(|| first.join("; "))?;
    Some(match problems.len() {
        ..=PROBLEMS_MAX => first,
        more => format!("{first}; and {} more", more - PROBLEMS_MAX),
    })
}

impl Record {
    fn forget_old_loss(&mut self) {
        if self.loss_at.is_some_and(|at| at.elapsed() > LOSS_SHOWN) {
            self.loss_at = None;
            self.totals.loss = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_shown_for_an_hour_with_few_ids_and_counted_for_ever() {
        let (audits, ids) = (Audits::default(), [(); 7].map(|()| EventId::new()));
        let now = Timestamp::UNIX_EPOCH;
        audits.begin("out");
        assert_eq!(audits.report()["out"], AuditReport::default());
        let audited = Audited {
            checked: 10,
            expired: 1,
            copies: 2,
            lost: ids[..4].to_vec(),
            problems: Vec::new(),
        };
        audits.found("out", &audited, now);
        let rest = Audited {
            checked: 3,
            lost: ids[4..].to_vec(),
            ..Audited::default()
        };
        audits.found("out", &rest, now + jiff::SignedDuration::from_secs(60));
        let loss = Loss {
            since: now,
            events: 7,
            ids: ids[..LOST_IDS_MAX].to_vec(),
        };
        let report = audits.report()["out"].clone();
        assert_eq!(report.loss, Some(loss));
        assert_eq!(
            (report.checked, report.lost, report.copies, report.expired),
            (13, 7, 2, 1)
        );
        tokio::time::advance(LOSS_SHOWN + Duration::from_secs(1)).await;
        let later = audits.report()["out"].clone();
        assert_eq!((later.loss, later.lost), (None, 7));
    }

    #[test]
    fn the_problem_of_a_stream_is_news_once_until_it_can_be_read() {
        let audits = Audits::default();
        let found = |places: &[&str]| {
            let problems = places.iter().map(|place| AuditProblem {
                place: Some((*place).to_owned()),
                why: format!("no right to read {place}"),
            });
            let audited = Audited {
                problems: problems.collect(),
                ..Audited::default()
            };
            let news = audits.found("out", &audited, Timestamp::UNIX_EPOCH);
            news.into_iter()
                .filter_map(|problem| problem.place.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&["a"]), ["a"]);
        assert_eq!(found(&["a", "b"]), ["b"]);
        let report = audits.report()["out"].clone();
        assert_eq!(report.problem.unwrap(), "no right to read a; no right to read b");
        found(&["a", "b", "c", "d", "e", "f", "g"]);
        let report = audits.report()["out"].clone();
        assert!(report.problem.unwrap().ends_with("read e; and 2 more"));
        assert!(found(&[]).is_empty());
        let report = audits.report()["out"].clone();
        assert_eq!((report.problem, report.failed), (None, 3));
        assert_eq!(found(&["a"]), ["a"]);
    }
}

//! From the keys to the relay's options, with the checks that a schema can't make.

mod backpressure;
mod delivery;
mod http;
mod layout;
mod notices;
mod relay;
mod reprocess;
mod shape;
mod tracing;
mod validation;
mod webhook;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use pillarbox::{Limits, table::Tables};
use pillarbox_relay::{
    connect::{Claim, DatabaseOptions, SinkOptions},
    driver::{self, About},
    engine,
    health::HealthLimits,
    metrics::metric_prefix,
    pressure::Class,
    reprocess::Schedule,
    route::Routes,
    scale::ScaleLimits,
    trace,
};

pub(crate) use self::http::{HttpSettings, JwtSettings, KeySource, Rate, TlsSettings, TokenSettings};
use self::{notices::NoticeSettings, validation::CheckSettings};
use super::{Loaded, schema, show::word, unknown::nearest};

/// What the commands work with.
#[derive(Clone)]
pub(crate) struct Settings {
    pub database: DatabaseOptions,
    pub default_database: bool,
    pub sinks: Vec<NamedSink>,
    pub routes: Routes,
    pub engine: engine::Options,
    pub limits: Limits,
    pub http: HttpSettings,
    pub monitoring: Monitoring,
    /// Traces of events. `None`: there are none.
    pub tracing: Option<trace::Options>,
    pub dead_letters: DeadLetterSettings,
    pub notices: NoticeSettings,
    pub reprocess: Vec<Schedule>,
    pub checks: CheckSettings,
    pub unique_versions: bool,
    /// `None`: no route has an event log.
    pub event_log: Option<EventLogSettings>,
    /// Limits on pending events.
    /// `None`: the limits of the outbox stay unchanged.
    pub backpressure: Option<Vec<Class>>,
}

/// What a relay shows of itself.
#[derive(Clone)]
pub(crate) struct Monitoring {
    /// The prefix of the metrics; `None`: there are no metrics.
    pub metrics_prefix: Option<String>,
    pub health_checks: bool,
    /// An own address for both.
    pub listen: Option<SocketAddr>,
    pub limits: HealthLimits,
    pub scale: ScaleLimits,
    /// How often delivered events are looked up; `None`: never.
    pub audit_every: Option<Duration>,
}

#[derive(Clone)]
pub(crate) struct DeadLetterSettings {
    /// How long they are kept; `None` means for ever.
    pub retention: Option<Duration>,
    pub replay_allowed: bool,
}

#[derive(Clone)]
pub(crate) struct EventLogSettings {
    /// How long entries are kept; `None` means for ever.
    pub retention: Option<Duration>,
}

#[derive(Clone)]
pub(crate) struct NamedSink {
    pub name: Arc<str>,
    pub options: SinkOptions,
}

/// The mistakes, each with the path of its key.
type Problems = Vec<(String, String)>;

pub(super) fn settings(loaded: &Loaded) -> Result<Settings, Problems> {
    let outbox = &loaded.config.outbox;
    let mut problems = Problems::new();
    not_built(outbox, &mut problems);
    let database = database(outbox, &mut problems);
    let mut sinks = delivery::sinks(outbox, &mut problems);
    let routes = delivery::routes(outbox, &sinks, &mut problems);
    delivery::streams(outbox, &mut sinks, &mut problems);
    delivery::topics(outbox, &mut sinks, &mut problems);
    let engine = relay::options(outbox, &mut problems);
    let notices = notices::settings(outbox, &mut problems);
    let reprocess = reprocess::schedules(outbox, &mut problems);
    let checks = validation::checks(outbox, &mut problems);
    let backpressure = backpressure::classes(outbox, &mut problems);
    let monitoring = monitoring(outbox, &mut problems);
    let tracing = tracing::options(outbox, &sinks, &engine.name, &mut problems);
    let http = http::settings(outbox, &mut problems);
    let letters_kept = retention(
        "outbox.dlq.dlq_retention_days",
        outbox.dlq.dlq_retention_days,
        &mut problems,
    );
    let log_kept = retention(
        "outbox.event_log.retention_days",
        outbox.event_log.retention_days,
        &mut problems,
    );
    let (Some(database), Some(routes), true) = (database, routes, problems.is_empty()) else {
        return Err(problems);
    };
    let event_log = routes
        .have_event_log()
        .then_some(EventLogSettings { retention: log_kept });
    Ok(Settings {
        database,
        event_log,
        default_database: loaded.default_database,
        sinks,
        routes,
        limits: Limits::default().payload_bytes_max(engine.payload_bytes_max),
        engine,
        http,
        monitoring,
        tracing,
        checks,
        dead_letters: DeadLetterSettings {
            retention: letters_kept,
            replay_allowed: outbox.dlq.enable_manual_replay,
        },
        notices,
        reprocess,
        unique_versions: outbox.database.unique_versions,
        backpressure,
    })
}

/// 0 days: for ever.
fn retention(key: &str, days: u32, problems: &mut Problems) -> Option<Duration> {
    if days > 0 {
        within(problems, key.into(), days, 36_500);
    }
    (days > 0).then(|| Duration::from_secs(u64::from(days) * 86_400))
}

fn monitoring(outbox: &schema::Outbox, problems: &mut Problems) -> Monitoring {
    let monitoring = &outbox.monitoring;
    let prefix = metric_prefix(&monitoring.metrics_prefix).unwrap_or_else(|problem| {
        let prefix = word(&monitoring.metrics_prefix);
        problems.push((
            "outbox.monitoring.metrics_prefix".into(),
            format!("`{prefix}` {problem}"),
        ));
        String::new()
    });
    let listen = monitoring
        .listen
        .filter(|_| monitoring.enable_metrics || monitoring.enable_health_checks);
    if listen.is_some_and(|listen| listen == outbox.http.listen && listen.port() != 0) {
        problems.push((
            "outbox.monitoring.listen".into(),
            "this is the address of `outbox.http.listen`: choose another port, or leave it out".into(),
        ));
    }
    let rate = monitoring.success_rate_min;
    if !(0.0..=1.0).contains(&rate) {
        problems.push((
            "outbox.monitoring.success_rate_min".into(),
            "it must be between 0 and 1: 0.9 means 90 %".into(),
        ));
    }
    let scale = ScaleLimits {
        pending_per_relay: monitoring.pending_per_relay,
        relays_min: monitoring.relays_min,
        relays_max: monitoring.relays_max,
    };
    let key = |name: &str| format!("outbox.monitoring.{name}");
    within(
        problems,
        key("pending_per_relay"),
        scale.pending_per_relay,
        1_000_000_000,
    );
    within(problems, key("relays_min"), scale.relays_min, 256);
    within(problems, key("relays_max"), scale.relays_max, 256);
    if scale.relays_min > scale.relays_max {
        problems.push((key("relays_min"), "it is larger than `relays_max`".into()));
    }
    let count = |max: u64| (max > 0).then_some(max);
    let audit_every = count(monitoring.audit_interval_seconds);
    if let Some(seconds) = audit_every {
        within(problems, key("audit_interval_seconds"), seconds, 86_400);
    }
    Monitoring {
        limits: HealthLimits {
            oldest_age_max: count(monitoring.oldest_age_max_seconds).map(Duration::from_secs),
            failed_max: count(monitoring.failed_events_max),
            success_rate_min: (rate > 0.0).then_some(rate),
            dead_growth_max: count(monitoring.dead_letters_growth_max),
        },
        scale,
        audit_every: audit_every.map(Duration::from_secs),
        metrics_prefix: monitoring.enable_metrics.then_some(prefix),
        health_checks: monitoring.enable_health_checks,
        listen,
    }
}

/// Keys whose function comes later: they are known, and only the value that means "off" is accepted.
fn not_built(outbox: &schema::Outbox, problems: &mut Problems) {
    let database = &outbox.database;
    let later = [
        (
            "database.wal_table_name",
            database.wal_table_name.is_some(),
            "the write-ahead log as a source",
            "leave it out",
        ),
        (
            "publisher.enable_wal_integration",
            outbox.publisher.enable_wal_integration,
            "the write-ahead log as a source",
            "set it to false",
        ),
    ];
    for (key, asked, what, instead) in later {
        if asked {
            problems.push((
                format!("outbox.{key}"),
                format!("{what}: this is not built yet; {instead}"),
            ));
        }
    }
}

fn database(outbox: &schema::Outbox, problems: &mut Problems) -> Option<DatabaseOptions> {
    let database = &outbox.database;
    let before = problems.len();
    let key = |name: &str| format!("outbox.database.{name}");
    let known = driver::STORES.iter().map(|driver| &driver.about);
    if let Err(problem) = check_address(&database.url, known) {
        let examples = driver::store_examples();
        problems.push((key("url"), format!("{problem}. Use {examples}")));
    }
    let by_rows = driver::store(&database.url).is_none_or(|driver| driver.claims_rows);
    if outbox.publisher.claim == schema::Claim::Rows && !by_rows {
        problems.push((
            "outbox.publisher.claim".into(),
            "`rows` works with MongoDB only: leave it out; relays then share the work by lanes, which keeps order".into(),
        ));
    }
    if database.pooler && database.notify == Some(true) {
        problems.push((
            key("notify"),
            "notifications do not work through a transaction pooler: leave `notify` out, or set `pooler` to false"
                .into(),
        ));
    }
    within(problems, key("connections_max"), database.connections_max, 1_000);
    within(
        problems,
        key("connect_timeout_ms"),
        database.connect_timeout_ms,
        DAY_MS,
    );
    within(
        problems,
        key("answer_timeout_ms"),
        database.answer_timeout_ms,
        DAY_MS,
    );
    within(
        problems,
        key("payload_bytes_max"),
        database.payload_bytes_max,
        1 << 30,
    );
    let layout = layout::layout(outbox, problems);
    let names = match &layout {
        Some(layout) => {
            if kind_of(&database.url) != Some("postgres") {
                problems.push((
                    "outbox.layout".into(),
                    "only tables in PostgreSQL can be adopted".into(),
                ));
            }
            if database.dlq_table_name.is_some() {
                problems.push((
                    key("dlq_table_name"),
                    "a table of dead letters that exists: this is not built yet; leave it out".into(),
                ));
            }
            if database.unique_versions {
                problems.push((
                    key("unique_versions"),
                    "with `layout`, this would refuse rows of producers that know nothing of it: set it to false".into(),
                ));
            }
            layout.own_tables()
        }
        None => Tables::new(&database.table_name, database.dlq_table_name.as_deref()),
    };
    let tables = names
        .map_err(|error| {
            let which = if error.name == database.table_name {
                "table_name"
            } else {
                "dlq_table_name"
            };
            problems.push((
                key(which),
                error.to_string().replacen(&error.name, &word(&error.name), 1),
            ));
        })
        .ok()?;
    (problems.len() == before).then(|| DatabaseOptions {
        tables,
        layout,
        claim: match outbox.publisher.claim {
            schema::Claim::Lanes => Claim::Lanes,
            schema::Claim::Rows => Claim::Rows,
        },
        notify: database.notify.unwrap_or(!database.pooler),
        pooler: database.pooler,
        connections_max: database.connections_max,
        connect_timeout: Duration::from_millis(database.connect_timeout_ms),
        answer_timeout: Duration::from_millis(database.answer_timeout_ms),
        ..DatabaseOptions::new(database.url.clone())
    })
}

/// The kind of database behind this address.
fn kind_of(url: &str) -> Option<&'static str> {
    driver::store(url).map(|driver| driver.about.kind)
}

/// Whether an address has one of these schemes and can be parsed. The message never shows the address: it may
/// contain a password.
fn check_address<'a>(url: &str, known: impl Iterator<Item = &'a About> + Clone) -> Result<(), String> {
    // Text before the colon that is not a scheme may be a user or a token.
    let is_scheme = |text: &str| {
        text.len() <= 20
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || matches!(b, b'-' | b'+'))
    };
    let Some((scheme, _)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return Err("this is not an address: it does not start with a `scheme:`".into());
    };
    let Some(about) = known.clone().find(|about| about.schemes.contains(&scheme)) else {
        let schemes = known.flat_map(|about| about.schemes).copied();
        let hint =
            nearest(scheme, schemes).map_or_else(String::new, |near| format!(" (did you mean `{near}:`?)"));
        return Err(format!("`{scheme}:` is not known here{hint}"));
    };
    (about.check)(url)
}

const DAY_MS: u64 = 86_400_000;

/// Checks for 1 to `max`. A larger number is a typing error, or more than any machine has room for.
fn within(problems: &mut Problems, key: String, value: impl Into<u64>, max: u64) {
    let value = value.into();
    if value == 0 {
        problems.push((key, "it must be 1 or more".into()));
    } else if value > max {
        problems.push((key, format!("it is {value}; the maximum is {max}")));
    }
}

//! From text, variables and flags to settings.

mod backpressure;
mod checks;
mod dlq;
mod http;
mod tracing;
mod webhook;

use super::*;

/// Every key of the original requirements, each with a value that is supported.
pub(super) const EVERY_KEY: &str = r#"
outbox:
  database:
    url: "postgres://app:secret@127.0.0.1/shop"
    table_name: "storage_outbox"
    dlq_table_name: "storage_outbox_dlq"
    wal_table_name:
  publisher:
    batch_size: 100
    poll_interval_ms: 1000
    max_concurrent_publishers: 5
    enable_wal_integration: false
  retry_policy:
    default_max_attempts: 7
    default_base_delay_ms: 1000
    default_max_delay_ms: 60000
    default_backoff_multiplier: 2.0
    enable_jitter: true
    jitter_range: [0.75, 1.25]
  dlq:
    auto_dlq_after_max_retries: true
    dlq_notification_enabled: false
    dlq_retention_days: 7
    enable_manual_replay: false
  validation:
    enable_schema_validation: false
    enable_business_rule_validation: false
    schema_registry_url:
  monitoring:
    enable_metrics: true
    metrics_prefix: "memoryos.storage.outbox"
    enable_health_checks: true
    alert_on_dlq_events: false
"#;

pub(super) fn load_text(text: &str, variables: &[(&str, &str)]) -> Result<Loaded> {
    let tree = file::parse(text).map_err(|problem| anyhow::anyhow!(problem))?;
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    overlay(tree, Some("a.yaml".into()), &Sources::default(), variables)
}

fn settings_of(text: &str) -> Result<Settings> {
    load_text(text, &[])?.settings()
}

/// All mistakes of a text, as one string.
fn problems(text: &str) -> String {
    settings_of(text).err().unwrap().to_string()
}

#[test]
fn every_key_of_the_seed_is_known() {
    let settings = settings_of(EVERY_KEY).unwrap();
    assert_eq!(settings.engine.batch_events_max, 100);
    assert_eq!(settings.engine.retry.attempts_max, 7);
    let prefix = settings.monitoring.metrics_prefix.as_deref();
    assert_eq!(prefix, Some("memoryos_storage_outbox"));
    assert_eq!(settings.database.tables.name(), "storage_outbox");
    assert_eq!(settings.database.tables.dead(), "\"storage_outbox_dlq\"");
}

#[test]
fn a_setting_that_is_not_built_is_refused() {
    for (group, line) in [
        ("database", "wal_table_name: storage_outbox_wal"),
        ("publisher", "enable_wal_integration: true"),
    ] {
        let text = problems(&format!("outbox:\n  {group}:\n    {line}\n"));
        let key = line.split(':').next().unwrap();
        assert!(text.contains("not built yet") && text.contains(key), "{text}");
        assert!(text.starts_with("a.yaml:3: "), "{text}");
    }
}

#[test]
fn metrics_have_a_valid_prefix_and_an_address_of_their_own() {
    let text = problems("outbox:\n  monitoring: { metrics_prefix: 1-x }\n");
    assert!(
        text.contains("metrics_prefix") && text.contains("begin with a letter"),
        "{text}"
    );
    let text = problems("outbox:\n  monitoring: { listen: \"127.0.0.1:7420\" }\n");
    assert!(text.contains("choose another port"), "{text}");
    let text = problems("outbox:\n  monitoring: { relays_min: 11 }\n");
    assert!(text.contains("relays_min") && text.contains("larger"), "{text}");
    let text = problems("outbox:\n  monitoring: { pending_per_relay: 0 }\n");
    assert!(text.contains("1 or more"), "{text}");
    let text = problems("outbox:\n  monitoring: { success_rate_min: 90 }\n");
    assert!(text.contains("between 0 and 1"), "{text}");
    let settings = settings_of("outbox:\n  monitoring: { listen: \"0.0.0.0:9090\" }\n").unwrap();
    assert_eq!(
        settings.monitoring.listen.unwrap().port(),
        9090,
        "it may be public"
    );
    let off = settings_of("outbox:\n  monitoring: { enable_metrics: false }\n").unwrap();
    assert_eq!(off.monitoring.metrics_prefix, None);
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_known_one() {
    let text = problems("outbox:\n  publisher:\n    batch_sise: 5\n");
    assert_eq!(
        text,
        "a.yaml:3: `outbox.publisher.batch_sise`: there is no key `batch_sise`. Did you mean `batch_size`?"
    );
    assert!(problems("outbox:\n  routes:\n    - { topik: a, sink: b }\n").contains("Did you mean `topic`?"));
    assert!(problems("outbox:\n  sinks:\n    x: { uri: \"null:\" }\n").contains("Did you mean `url`?"));
}

#[test]
fn a_value_of_the_wrong_kind_names_its_line() {
    assert!(problems("outbox:\n\n  publisher: { batch_size: many }").starts_with("a.yaml:3: "));
    assert!(problems("outbox:\n  publisher: { batch_size: -1 }").contains("0 or more"));
    assert!(problems("outbox: 3").contains("a group of keys"));
    assert!(
        problems("outbox:\n  streams: [{ name: A, subjects: [a], storage: fil }]")
            .contains("Did you mean `file`?")
    );
}

#[test]
fn everything_has_a_default() {
    let settings = settings_of("").unwrap();
    assert_eq!(settings.database.url, "sqlite:pillarbox.db");
    assert!(settings.default_database);
    assert_eq!(settings.sinks[0].options.url, "http-stream:");
    assert_eq!(
        (settings.engine.batch_events_max, settings.engine.publishers_max),
        (200, 5)
    );
    assert_eq!(settings.http.listen.to_string(), "127.0.0.1:7420");
}

#[test]
fn a_variable_overrides_a_key() {
    let variables = [
        (
            "PILLARBOX_OUTBOX__DATABASE__URL",
            "postgres://a:b%23c@127.0.0.1/x",
        ),
        ("PILLARBOX_OUTBOX__PUBLISHER__BATCH_SIZE", "17"),
        ("PILLARBOX_OUTBOX__RETRY_POLICY__JITTER_RANGE", "[0.5, 1.5]"),
        ("PILLARBOX_OUTBOX__SINKS__EVENTS__URL", "null:"),
        ("PILLARBOX_LOG", "debug"),
        ("OTHER__THING", "x"),
    ];
    let settings = load_text(EVERY_KEY, &variables).unwrap().settings().unwrap();
    assert_eq!(settings.database.url, "postgres://a:b%23c@127.0.0.1/x");
    assert_eq!(settings.engine.batch_events_max, 17);
    assert_eq!(settings.engine.retry.jitter, (0.5, 1.5));
    assert_eq!(&*settings.sinks[0].name, "events");
}

#[test]
fn a_misspelt_variable_is_an_error_that_names_it() {
    let error = load_text("", &[("PILLARBOX_OUTBOX__PUBLISHER__BATCHSIZE", "1")])
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("PILLARBOX_OUTBOX__PUBLISHER__BATCHSIZE") && error.contains("`batch_size`"),
        "{error}"
    );
}

#[test]
fn a_variable_may_name_any_number_of_levels_and_is_refused() {
    let name = format!("PILLARBOX_OUTBOX{}", "__A".repeat(100_000));
    let error = load_text("", &[(&name, "1")]).err().unwrap().to_string();
    assert!(
        error.contains("PILLARBOX_OUTBOX__A__A") && error.len() < 200,
        "{error}"
    );
}

#[test]
fn a_number_beyond_every_machine_is_refused() {
    for (group, key, value) in [
        ("database", "connections_max", 2_147_483_648_u64),
        ("database", "answer_timeout_ms", u64::MAX),
        ("database", "payload_bytes_max", u64::MAX),
        ("publisher", "batch_size", u64::from(u32::MAX)),
        ("publisher", "max_concurrent_publishers", u64::from(u32::MAX)),
        ("publisher", "lease_ms", u64::MAX),
        ("publisher", "window_bytes_max", u64::MAX),
        ("retry_policy", "default_max_delay_ms", u64::MAX),
        ("dlq", "dlq_retention_days", u64::from(u32::MAX)),
    ] {
        let text = problems(&format!("outbox:\n  {group}:\n    {key}: {value}\n"));
        assert!(text.contains(key) && text.contains("the maximum is"), "{text}");
    }
}

#[test]
fn names_that_refer_to_nothing_are_found() {
    let sinks =
        "outbox:\n  sinks:\n    events: { url: nats://127.0.0.1:4222 }\n    other: { url: 'null:' }\n";
    assert!(problems(sinks).contains("2 sinks and no routes"));
    let text = problems(&format!(
        "{sinks}  routes:\n    - {{ topic: \"a.>\", sink: event }}\n    - {{ topic: \"a..b\", sink: other }}\n"
    ));
    assert!(
        text.contains("there is no sink `event`. Did you mean `events`?"),
        "{text}"
    );
    assert!(
        text.contains("a.yaml:7: ") && text.contains("a token is empty"),
        "{text}"
    );
    let text = problems("outbox:\n  streams:\n    - { name: A, subjects: [\"a.>\"] }\n");
    assert!(text.contains("no sink has streams"), "{text}");
}

#[test]
fn a_stream_belongs_to_the_one_sink_that_has_streams() {
    let text = "outbox:\n  sinks:\n    events: { url: nats://127.0.0.1:4222 }\n  streams:\n    - { name: A, subjects: [\"a.>\"], replicas: 3 }\n";
    let settings = settings_of(text).unwrap();
    assert_eq!(settings.sinks[0].options.streams[0].replicas, 3);
}

#[test]
fn a_topic_belongs_to_the_kafka_sink_and_its_settings_are_text() {
    let text = "outbox:\n  sinks:\n    events: { url: \"kafka://127.0.0.1:9092\" }\n    old: { url: \"nats://127.0.0.1\" }\n  routes: [{ topic: \">\", sink: events, stream: orders }]\n  topics:\n    - { name: orders, partitions: 6, settings: { retention.ms: 604800000, cleanup.policy: compact, min.cleanable.dirty.ratio: 0.25 } }\n";
    let settings = settings_of(text).unwrap();
    let topic = &settings.sinks[0].options.topics[0];
    assert_eq!((topic.partitions, topic.replication), (Some(6), None));
    assert_eq!(topic.settings["retention.ms"], "604800000");
    assert_eq!(topic.settings["min.cleanable.dirty.ratio"], "0.25");
    let nats = text.replace("{ name: orders,", "{ name: orders, sink: old,");
    assert!(problems(&nats).contains("only a Kafka sink has"));
    let bad = text.replace("{ name: orders,", "{ name: \"a b\",");
    assert!(problems(&bad).contains("249 letters"));
    let none = "outbox:\n  topics: [{ name: a }]\n";
    assert!(problems(none).contains("no sink has topics"));
}

#[test]
fn several_kafka_brokers_are_one_address() {
    let url = "kafka://app:geheim@127.0.0.1:9092,127.0.0.1:9093?sasl=scram-sha-256";
    let text = format!("outbox:\n  sinks:\n    a: {{ url: \"{url}\" }}\n");
    assert_eq!(settings_of(&text).unwrap().sinks[0].options.url, url);
    let (shown, _) = in_force(&load_text(&text, &[]).unwrap().config).unwrap();
    assert!(
        shown.contains("127.0.0.1:9093") && !shown.contains("geheim"),
        "{shown}"
    );
}

#[test]
fn an_address_that_cant_work_is_refused_without_being_shown() {
    for (url, part) in [
        ("postgress://a:geheim@h/x", "did you mean `postgres:`?"),
        ("geheim", "not an address"),
        ("geheim@127.0.0.1:5432/shop", "not an address"),
        ("postgres:geheim", "followed by `//`"),
        ("postgres://a:geheim@:99999/x", "can't be read"),
    ] {
        let text = problems(&format!("outbox:\n  database:\n    url: \"{url}\"\n"));
        assert!(text.contains(part) && !text.contains("geheim"), "{text}");
    }
    assert!(problems("outbox:\n  http: { listen: \"0.0.0.0:7420\" }").contains("other machines"));
}

#[test]
fn rows_are_claimed_in_mongodb_alone() {
    let rows =
        |url: &str| format!("outbox:\n  database: {{ url: \"{url}\" }}\n  publisher: {{ claim: rows }}\n");
    for url in [
        "mongodb://a:1,b:2/shop?replicaSet=rs0",
        "mongodb+srv://app:x@c.example/shop",
    ] {
        let settings = settings_of(&rows(url)).unwrap();
        assert_eq!(settings.database.claim, pillarbox_relay::connect::Claim::Rows);
    }
    let text = problems(&rows("postgres://app@127.0.0.1/shop"));
    assert!(
        text.starts_with("a.yaml:3: ") && text.contains("MongoDB only"),
        "{text}"
    );
    for url in ["mongodb:", "mongodb:///shop", "mongodb://app:geheim@/shop"] {
        let text = problems(&rows(url));
        assert!(text.contains("host") && !text.contains("geheim"), "{text}");
    }
}

#[test]
fn several_nats_servers_are_one_address() {
    let url = "nats://app:geheim@127.0.0.1:4222,127.0.0.1:4223?creds=app.creds";
    let text = format!("outbox:\n  sinks:\n    a: {{ url: \"{url}\" }}\n");
    assert_eq!(settings_of(&text).unwrap().sinks[0].options.url, url);
    let (shown, _) = in_force(&load_text(&text, &[]).unwrap().config).unwrap();
    assert!(
        shown.contains("127.0.0.1:4223") && !shown.contains("geheim"),
        "{shown}"
    );
    let bad = "outbox:\n  sinks:\n    a: { url: \"nats://127.0.0.1:4222,127.0.0.1:99999\" }\n";
    assert!(problems(bad).contains("can't be read"));
}

#[test]
fn secrets_are_never_shown() {
    let text = "outbox:\n  database: { url: \"postgres://app:geheim@127.0.0.1/shop?sslpassword=geheim\" }\n  sinks:\n    a: { url: \"nats://geheim@127.0.0.1\" }\n";
    let (shown, value) = in_force(&load_text(text, &[]).unwrap().config).unwrap();
    assert!(
        !shown.contains("geheim") && !value.to_string().contains("geheim"),
        "{shown}"
    );
    let broken = load_text(
        "outbox:\n  database:\n    url: postgres://a:geheim@h/x\n   bad: [",
        &[],
    )
    .err()
    .unwrap();
    assert!(!format!("{broken:#}").contains("geheim"), "{broken:#}");
}

#[test]
fn an_address_in_the_wrong_place_keeps_its_password() {
    let address = "postgres://app:geheim@127.0.0.1/shop";
    for text in [
        // A colon is missing, so the address has become part of the key.
        format!("outbox:\n  database: {{ url \"{address}\" }}\n"),
        format!("outbox:\n  \"{address}\": 1\n"),
        format!("outbox:\n  sinks:\n    \"{address}\": {{ uri: 1 }}\n"),
        format!("outbox:\n  routes: [{{ topic: a, sink: \"{address}\" }}]\n"),
        format!("outbox:\n  routes: [{{ topic: \"{address}.\", sink: stream }}]\n"),
        format!("outbox:\n  streams: [{{ name: A, subjects: [a], storage: \"{address}\" }}]\n"),
        format!("outbox:\n  database: {{ table_name: \"{address}\" }}\n"),
    ] {
        let shown = problems(&text);
        assert!(!shown.contains("geheim"), "{shown}");
    }
    let text = format!("outbox:\n  routes: [{{ topic: \"{address}\", sink: stream }}]\n");
    let (shown, value) = in_force(&load_text(&text, &[]).unwrap().config).unwrap();
    assert!(
        !shown.contains("geheim") && !value.to_string().contains("geheim"),
        "{shown}"
    );
}

#[test]
fn the_settings_in_force_can_be_read_back() {
    let loaded = load_text(EVERY_KEY, &[]).unwrap();
    let (shown, _) = in_force(&loaded.config).unwrap();
    assert_eq!(settings_of(&shown).unwrap().engine.batch_events_max, 100);
}

/// The help and the schema name every kind of sink and database.
#[test]
fn help_and_schema_name_every_driver() {
    use clap::CommandFactory;
    use pillarbox_relay::driver;

    let help = crate::cli::Cli::command().render_long_help().to_string();
    let schema = serde_json::to_string(&schemars::schema_for!(schema::Config)).unwrap();
    let sinks = driver::SINKS.iter().map(|driver| &driver.about);
    for about in sinks.chain(driver::STORES.iter().map(|driver| &driver.about)) {
        let address = format!("{}:", about.schemes[0]);
        assert!(help.contains(&address), "--help does not name {address}");
        assert!(schema.contains(&address), "no key's text names {address}");
    }
}

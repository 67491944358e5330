//! Random configurations.

use pillarbox_testkit::{
    fuzz::{self, Fuzz, SECRET, assert_no_secret, assert_says_something},
    torture::Campaign,
};

use super::{tests::EVERY_KEY, *};

/// Addresses with a secret in each place where one is possible.
const ADDRESSES: &[&str] = &[
    "postgres://app:geheimnis7f3a@127.0.0.1:5432/shop?sslmode=disable",
    "postgres://127.0.0.1/shop?password=geheimnis7f3a",
    "sqlite:pillarbox.db",
    "nats://app:geheimnis7f3a@127.0.0.1:4222,127.0.0.1:4223",
    "tls://geheimnis7f3a@127.0.0.1:4222?ca=ca.pem",
    "https://app:geheimnis7f3a@127.0.0.1/geheimnis7f3a",
    "http-stream:",
];

const EXAMPLES: &[&str] = &[
    EVERY_KEY,
    r#"
outbox:
  database: { url: "postgres://app:geheimnis7f3a@127.0.0.1/shop", pooler: true, connections_max: 3 }
  sinks:
    events: { url: "nats://geheimnis7f3a@127.0.0.1:4222", publish_timeout_ms: 2000 }
    log: { url: "kafka://app:geheimnis7f3a@127.0.0.1:9092,127.0.0.1:9093?sasl=plain&linger_ms=5" }
    other:
      url: 'stdout:'
    hooks:
      url: "https://app:geheimnis7f3a@127.0.0.1/geheimnis7f3a?token=geheimnis7f3a"
      webhook: { secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw], headers: { authorization: geheimnis7f3a }, requests_max: 8, ca: ca.pem, cert: a.pem, key: a.key }
  routes:
    - { topic: "rwa.>", sink: events, stream: STREAM_RWA }
    - { topic: "payout.*", sink: other, after_death: skip }
  streams:
    - { name: STREAM_RWA, subjects: ["rwa.>"], replicas: 3, storage: file, duplicate_window_seconds: 60 }
  topics:
    - { name: rwa.created, partitions: 6, replication: 3, settings: { retention.ms: 604800000, cleanup.policy: delete } }
  publisher: { batch_size: 200, lease_ms: 5000, window_events_max: 4000, name: "relay-1" }
  retry_policy: { jitter_range: [0.5, 1.5] }
  http: { listen: "127.0.0.1:7420" }
  monitoring:
    tracing: { otlp_endpoint: "http://geheimnis7f3a@127.0.0.1:4318", headers: { x-team: shop }, sample_ratio: 0.5 }
"#,
    r#"
outbox:
  dlq:
    dlq_notification_enabled: true
    notifications:
      quiet_period_seconds: 900
      gather_ms: 2000
      check_interval_seconds: 60
      recovery_wait_seconds: 10
      troubles: true
      trouble_wait_seconds: 30
      retry_delays_seconds: [5, 30, 120]
      log: true
      webhooks:
        - { url: "https://127.0.0.1/a?b=c", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, timeout_seconds: 15 }
        - { url: "http://127.0.0.1:80", secrets: ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] }
      commands:
        - { command: [mail, "-s", "dead letters", ops], timeout_seconds: 30 }
    reprocess:
      - { name: nightly, at: "03:30", topic: "shop.>", reason: max_retries_exceeded, limit: 1000, times_max: 3 }
      - { name: often, every_seconds: 600, event_type: Placed, fingerprint: 1f0c9a44be21, min_age_seconds: 60 }
  monitoring: { alert_on_dlq_events: true }
"#,
    r#"
outbox:
  http:
    listen: "0.0.0.0:7420"
    hosts: [a.example, "::1"]
    tokens:
      - { name: ci, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, roles: [produce, read], project: shop, user: zoe }
    jwt:
      jwks_url: "https://app:geheimnis7f3a@127.0.0.1/jwks?token=geheimnis7f3a"
      issuer: "https://127.0.0.1"
      audience: pillarbox
      roles_claim: realm_access.roles
      project_claim: project
      unscoped_claim: realm_access.unscoped
      refresh_seconds: 60
      leeway_seconds: 0
    tls: { certificate: a.pem, key: a.key, client_ca: ca.pem, client_roles: [read, operate] }
    rate_limit: { requests_per_second: 10, burst: 20 }
"#,
];

const VARIABLES: &[(&str, &str)] = &[
    (
        "PILLARBOX_OUTBOX__DATABASE__URL",
        "postgres://app:geheimnis7f3a@127.0.0.1/shop",
    ),
    (
        "PILLARBOX_OUTBOX__SINKS__EVENTS__URL",
        "nats://geheimnis7f3a@127.0.0.1",
    ),
    ("PILLARBOX_OUTBOX__PUBLISHER__BATCH_SIZE", "17"),
    ("PILLARBOX_OUTBOX__ROUTES__0__TOPIC", "a.>"),
    ("PILLARBOX_OUTBOX__RETRY_POLICY__JITTER_RANGE", "[0.5, 1.5]"),
];

#[derive(Debug, Clone)]
struct Input {
    text: String,
    variables: Vec<(String, String)>,
    database: Option<String>,
    sink: Option<String>,
    listen: Option<String>,
}

fn input(fuzz: &mut Fuzz) -> Input {
    let example = fuzz.pick(EXAMPLES);
    let variables = (0..fuzz.below(3)).map(|_| variable(fuzz)).collect();
    Input {
        text: match fuzz.below(20) {
            0 => format!("outbox: {}", fuzz.json()),
            1 => String::new(),
            2 => example.to_owned(),
            _ => fuzz.mutated_text(example),
        },
        variables,
        database: fuzz.one_in(8).then(|| address(fuzz)),
        sink: fuzz.one_in(8).then(|| address(fuzz)),
        listen: fuzz.one_in(8).then(|| fuzz.mutated_text("127.0.0.1:7420")),
    }
}

fn address(fuzz: &mut Fuzz) -> String {
    let example = fuzz.pick(ADDRESSES);
    fuzz.mutated_text(example)
}

fn variable(fuzz: &mut Fuzz) -> (String, String) {
    let (name, value) = VARIABLES[fuzz.below(VARIABLES.len())];
    let name = if fuzz.one_in(3) {
        fuzz.mutated_text(name)
    } else {
        name.to_owned()
    };
    let value = match fuzz.below(4) {
        0 => fuzz.text(),
        1 => address(fuzz),
        _ => fuzz.mutated_text(value),
    };
    (name, value)
}

/// Whether every secret is still at the place of a password: a mutation may have turned one into a name or a
/// path.
fn secrets_are_passwords(input: &Input) -> bool {
    let text = format!("{input:?}");
    text.match_indices(SECRET).all(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + SECRET.len()..]);
        let as_user =
            before.ends_with("nats://") || before.ends_with("tls://") || before.ends_with("://app:");
        (as_user && after.starts_with('@')) || before.ends_with("?password=")
    })
}

fn attempt(input: Input) {
    let assert_no_secret: fn(&str) = match secrets_are_passwords(&input) {
        true => assert_no_secret,
        false => |_| (),
    };
    let assert_says_something = |error: &str| {
        assert_says_something(&error.replace(SECRET, ""));
        assert_no_secret(error);
    };
    let sources = Sources {
        file: None,
        database: input.database,
        sink: input.sink,
        listen: input.listen,
    };
    let loaded = file::parse(&input.text)
        .map_err(|problem| anyhow::anyhow!(problem))
        .and_then(|tree| overlay(tree, Some("a.yaml".into()), &sources, input.variables.into_iter()));
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return assert_says_something(&format!("{error:#}")),
    };
    let settings = match loaded.settings() {
        Ok(settings) => settings,
        Err(error) => return assert_says_something(&format!("{error:#}")),
    };
    let (shown, _) = in_force(&loaded.config).unwrap();
    assert_no_secret(&shown);
    // The effective configuration that is shown is valid too, and the same except for what is masked in
    // addresses.
    let again = tests::load_text(&shown, &[]).unwrap_or_else(|error| panic!("{error:#}: {shown}"));
    let without_addresses = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| !line.contains("url: ") && !line.contains("://"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(
        without_addresses(&in_force(&again.config).unwrap().0),
        without_addresses(&shown)
    );
    if let Err(error) = can_be_opened(&settings) {
        assert_says_something(&format!("{error:#}"));
    }
}

/// Mutated YAML, variables and flags: an error with a message and no secret, or usable settings.
#[test]
fn torture_fuzz_configuration() {
    let campaign = Campaign::begin("fuzz_configuration");
    assert!(EXAMPLES[1].contains(SECRET));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The runtime is entered and never driven, so opened sinks do nothing in the background, such as
    // connecting.
    fuzz::each(&campaign, input, move |input| {
        let _entered = runtime.enter();
        attempt(input);
    });
}

//! One row that nobody checked.

use pillarbox_testkit::fuzz::Fuzz;
use sqlx::{PgPool, SqlitePool};
use uuid::Uuid;

const TIMES: &[&str] = &[
    "now",
    "epoch",
    "infinity",
    "-infinity",
    "4713-01-01 00:00 BC",
    "294276-12-31 23:59:59",
    "tomorrow",
];

/// Most of it is correct; otherwise the first error would hide the others.
#[derive(Debug)]
pub(super) struct Row {
    id: Vec<u8>,
    lane: i64,
    topic: Vec<u8>,
    event_type: Vec<u8>,
    aggregate_type: Vec<u8>,
    aggregate_id: Vec<u8>,
    /// stream, partition_key, project_id, user_id, last_error
    optional: [Option<Vec<u8>>; 5],
    payload: Vec<u8>,
    headers: Vec<u8>,
    schema_version: i64,
    attempts: i64,
    /// aggregate_version, max_attempts, base_delay_ms, max_delay_ms
    numbers: [Option<i64>; 4],
    backoff_multiplier: Option<f64>,
    /// created_at, available_at, first_attempt_at, last_attempt_at, published_at
    times: [Option<&'static str>; 5],
    /// The same for SQLite.
    microseconds: [Option<i64>; 5],
}

impl Row {
    pub(super) fn new(fuzz: &mut Fuzz, nth: u64) -> Self {
        let created = if fuzz.one_in(10) {
            fuzz.integer()
        } else {
            1_790_000_000_000_000
        };
        Self {
            id: match fuzz.one_in(10) {
                true => text(fuzz, "")
                    .into_iter()
                    .chain(nth.to_string().into_bytes())
                    .collect(),
                false => Uuid::now_v7().to_string().into_bytes(),
            },
            lane: (fuzz.below(300)) as i64,
            topic: text(fuzz, "orders.x"),
            event_type: text(fuzz, "X"),
            aggregate_type: text(fuzz, "order"),
            aggregate_id: text(fuzz, &format!("garbage-{}", nth % 50)),
            optional: std::array::from_fn(|_| fuzz.one_in(6).then(|| text(fuzz, "EVENTS"))),
            payload: payload(fuzz),
            headers: match fuzz.below(6) {
                0 => fuzz.json().into_bytes(),
                1 => text(fuzz, "{\"a\": 1, \"b\": true, \"c\": null}"),
                2 => fuzz.mutated(br#"{"traceparent": "00-x", "Nats-Msg-Id": "1"}"#),
                _ => b"{}".to_vec(),
            },
            schema_version: if fuzz.one_in(6) { fuzz.integer() } else { 1 },
            attempts: if fuzz.one_in(6) { fuzz.integer() } else { 0 },
            numbers: std::array::from_fn(|_| fuzz.one_in(6).then(|| fuzz.integer())),
            backoff_multiplier: fuzz.one_in(6).then(|| fuzz.float()),
            times: std::array::from_fn(|_| fuzz.one_in(8).then(|| TIMES[fuzz.below(TIMES.len())])),
            microseconds: std::array::from_fn(|at| match at {
                0 => Some(created),
                _ => fuzz.one_in(10).then(|| fuzz.integer()),
            }),
        }
    }

    /// Inserts it. Returns whether the database accepted it.
    pub(super) async fn into_postgres(self, pool: &PgPool) -> bool {
        // PostgreSQL accepts only valid UTF-8 without NUL.
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).replace('\0', "");
        let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MIN);
        let [stream, partition_key, project_id, user_id, last_error] =
            self.optional.each_ref().map(|it| it.as_ref().map(text));
        let [version, max_attempts, base_delay, max_delay] = self.numbers;
        let mut query = sqlx::query(
            "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, stream, partition_key,
                 project_id, user_id, last_error, payload, headers, schema_version, attempts, aggregate_version,
                 max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier, created_at, available_at,
                 first_attempt_at, last_attempt_at, published_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::jsonb, $12, $13, $14, $15, $16, $17, $18,
                 coalesce($19::text::timestamptz, now()), $20::text::timestamptz, $21::text::timestamptz,
                 $22::text::timestamptz, $23::text::timestamptz)",
        );
        for required in [
            &self.topic,
            &self.event_type,
            &self.aggregate_type,
            &self.aggregate_id,
        ] {
            query = query.bind(text(required));
        }
        query = query
            .bind(stream)
            .bind(partition_key)
            .bind(project_id)
            .bind(user_id)
            .bind(last_error);
        query = query.bind(text(&self.payload)).bind(text(&self.headers));
        query = query
            .bind(narrow(self.schema_version))
            .bind(narrow(self.attempts))
            .bind(version);
        query = query
            .bind(max_attempts.map(narrow))
            .bind(base_delay)
            .bind(max_delay)
            .bind(self.backoff_multiplier);
        for time in self.times {
            query = query.bind(time);
        }
        query.execute(pool).await.is_ok()
    }

    /// Inserts it. Returns whether the database accepted it.
    pub(super) async fn into_sqlite(self, pool: &SqlitePool) -> bool {
        let mut query = sqlx::query(
            "insert into outbox_events (id, topic, event_type, aggregate_type, aggregate_id, stream, partition_key,
                 project_id, user_id, last_error, payload, headers, lane, schema_version, attempts, aggregate_version,
                 max_attempts, base_delay_ms, max_delay_ms, backoff_multiplier, created_at, available_at,
                 first_attempt_at, last_attempt_at, published_at)
             values (cast(?1 as text), cast(?2 as text), cast(?3 as text), cast(?4 as text), cast(?5 as text),
                 cast(?6 as text), cast(?7 as text), cast(?8 as text), cast(?9 as text), cast(?10 as text),
                 cast(?11 as text), cast(?12 as text), ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)",
        );
        for required in [
            self.id,
            self.topic,
            self.event_type,
            self.aggregate_type,
            self.aggregate_id,
        ] {
            query = query.bind(required);
        }
        for optional in self.optional {
            query = query.bind(optional);
        }
        query = query.bind(self.payload).bind(self.headers);
        query = query
            .bind(self.lane)
            .bind(self.schema_version)
            .bind(self.attempts);
        for number in self.numbers {
            query = query.bind(number);
        }
        query = query.bind(self.backoff_multiplier);
        for time in self.microseconds {
            query = query.bind(time);
        }
        query.execute(pool).await.is_ok()
    }
}

/// Mostly the usual text, otherwise anything. For SQLite it may not even be a text.
fn text(fuzz: &mut Fuzz, usual: &str) -> Vec<u8> {
    match fuzz.below(12) {
        0 => fuzz.text().into_bytes(),
        1 => fuzz.mutated(usual.as_bytes()),
        2 if fuzz.one_in(3) => fuzz.bytes(),
        _ => usual.as_bytes().to_vec(),
    }
}

fn payload(fuzz: &mut Fuzz) -> Vec<u8> {
    match fuzz.below(12) {
        0 => fuzz.text().into_bytes(),
        1 => fuzz.bytes(),
        2 => fuzz.mutated(br#"{"n": 1, "list": [1.5, "x", null]}"#),
        3 if fuzz.one_in(20) => vec![b'1'; 1_100_000],
        _ => fuzz.json().into_bytes(),
    }
}

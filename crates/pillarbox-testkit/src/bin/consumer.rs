//! A consumer for tests to kill. It writes every event into the table `effects`, in the transaction of its
//! inbox. Its only argument is a [`Plan`] as JSON. It ends normally when its stdin is closed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use pillarbox::consume::{Consumer, Context, Handler, HandlerError, JetStream, Kafka, Received};
use pillarbox_testkit::consumer::Plan;
use rand::RngExt;
use sqlx::{PgPool, Postgres, Transaction, postgres::PgPoolOptions};
use tokio::io::AsyncReadExt;

struct Effects {
    plan: Plan,
}

impl Handler<PgPool> for Effects {
    async fn handle(
        &self,
        event: &Received,
        context: &Context,
        tx: &mut Transaction<'static, Postgres>,
    ) -> Result<(), HandlerError> {
        sqlx::query("insert into effects (key, version, event_id) values ($1, $2, $3)")
            .bind(&context.key)
            .bind(event.aggregate_version)
            .bind(event.id.to_string())
            .execute(&mut **tx)
            .await?;
        if self.plan.deadly == Some(event.id.clone()) {
            // Like a stack overflow, or a system without free memory: nothing unwinds.
            std::process::abort();
        }
        if rand::rng().random::<f64>() < self.plan.slow {
            tokio::time::sleep(Duration::from_millis(self.plan.slow_ms)).await;
        }
        // Fail after the effect: a rollback must leave nothing.
        let chance: f64 = rand::rng().random();
        if chance < self.plan.panicking {
            panic!("as told");
        }
        if chance < self.plan.panicking + self.plan.failing {
            return Err("as told".into());
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let plan = std::env::args().nth(1).context("a plan is expected")?;
    let plan: Plan = serde_json::from_str(&plan)?;
    if plan.panicking > 0.0 {
        // Hundreds of panics are expected, so do not print them.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let pool = PgPoolOptions::new()
        .max_connections(20)
        .connect(&plan.database)
        .await?;
    let consumer = Consumer::new(&plan.group, pool).options(|options| {
        options.attempts_max = plan.attempts_max;
        options.deaths_max = plan.deaths_max;
        options.backoff_base = Duration::from_millis(plan.backoff_ms);
        options.backoff_max = Duration::from_millis(plan.backoff_ms * 4);
    });
    let effects = Effects { plan: plan.clone() };
    let running = match (&plan.nats, &plan.kafka) {
        (Some(url), _) => {
            let context = async_nats::jetstream::new(async_nats::connect(url).await?);
            let stream =
                JetStream::new(context, &plan.topic).ack_wait(Duration::from_millis(plan.ack_wait_ms));
            consumer.start(stream, effects).await?
        }
        (None, Some(bootstrap)) => {
            let mut config = rdkafka::ClientConfig::new();
            config.set("bootstrap.servers", bootstrap);
            if let Some(instance) = &plan.instance {
                config.set("group.instance.id", instance);
            }
            if let Some(session) = plan.session_timeout_ms {
                config.set("session.timeout.ms", session.to_string());
                config.set("heartbeat.interval.ms", (session / 4).to_string());
            }
            consumer.start(Kafka::new(config, [&plan.topic]), effects).await?
        }
        (None, None) => anyhow::bail!("the plan names no broker"),
    };
    let mut nothing = Vec::new();
    tokio::io::stdin().read_to_end(&mut nothing).await?;
    Ok(running.stop().await?)
}

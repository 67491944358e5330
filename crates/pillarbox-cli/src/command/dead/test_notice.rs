//! `pillarbox dead test-notice`

use anyhow::{Result, bail};
use jiff::Timestamp;
use pillarbox_relay::notice::{self, Message};
use serde_json::json;
use uuid::Uuid;

use crate::output::{Answer, Context, table};

/// Send a test notice through every configured channel
///
/// Reports for each channel whether it accepted the notice. There is only one attempt, and nothing
/// is stored.
///
///   pillarbox dead test-notice
///
/// Exits 1 if a channel did not accept it.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {}

pub(super) async fn run(Args {}: Args, context: &Context) -> Result<Answer> {
    let settings = context.settings()?;
    if settings.notices.configured.is_empty() {
        bail!("no notification channel is configured: see `outbox.dlq.notifications`");
    }
    let (outbox, relay) = (settings.database.tables.name(), &*settings.engine.name);
    let body = Message::test(Timestamp::now(), outbox, relay).body();
    let id = Uuid::now_v7();
    let (mut rows, mut answers, mut all) = (table(&["CHANNEL", "RESULT"]), Vec::new(), true);
    for options in &settings.notices.configured {
        let channel = notice::open(options)?;
        let told = channel.tell(id, &body).await.map_err(|error| error.to_string());
        all &= told.is_ok();
        let shown = match &told {
            Ok(()) => context.good("taken"),
            Err(why) => context.bad(why),
        };
        rows.add_row([channel.name(), shown]);
        answers.push(json!({ "channel": channel.name(), "taken": told.is_ok(), "error": told.err() }));
    }
    if context.json {
        context.print_json(&json!({ "id": id, "channels": answers }))?;
    } else {
        context.print(&rows.trim_fmt())?;
        if settings.notices.channels.is_empty() {
            context.say("Relays send no notices yet: set `outbox.dlq.dlq_notification_enabled` to true.");
        }
    }
    Ok(if all { Answer::Yes } else { Answer::No })
}

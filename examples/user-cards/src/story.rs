//! What happens, step by step, and the check of the result.

mod kafka;
mod verdict;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::verdict::{Books, Verdict};
use crate::{Broker, Database, TOPIC, cards::Card, stage::Stage};

/// The timeout for the last card: a relay's lease and a consumer's session have to end first.
const PATIENCE: Duration = Duration::from_secs(90);
/// Pillarbox is killed once in so many changes, and so is the projection.
const KILLED_EVERY: u32 = 12;
const PEOPLE: [(&str, &str); 5] = [
    ("Ada", "ada@example.com"),
    ("Grace", "grace@example.com"),
    ("Edsger", "edsger@example.com"),
    ("Barbara", "barbara@example.com"),
    ("Tony", "tony@example.com"),
];

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    broker: Broker,
    /// The `pillarbox` binary [default: the one next to this program]
    #[arg(long)]
    pillarbox: Option<PathBuf>,
    /// End with the verdict instead of running until interrupted
    #[arg(long)]
    once: bool,
    /// End when the process that started this has ended
    #[arg(long)]
    until_stdin_ends: bool,
    /// How many changes to make while Pillarbox and the projection are killed
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    changes: u32,
}

pub(crate) async fn tell(arguments: Arguments) -> Result<ExitCode> {
    let pillarbox = match &arguments.pillarbox {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("pillarbox"),
    };
    let mut stage = Stage::new(&arguments.database, &arguments.broker, &pillarbox)?;
    let told = tokio::select! {
        told = play(&mut stage, &arguments) => told,
        () = ended(&arguments) => {
            stage.end().await?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let kept = match told {
        Ok(verdict) => verdict.kept(),
        Err(error) => {
            stage.end().await?;
            return Err(error);
        }
    };
    if !arguments.once {
        println!("\nLook around; Ctrl-C ends everything:");
        println!("  users       {}/users", stage.service_url());
        println!("  cards       {}/cards", stage.service_url());
        println!("  Pillarbox   {}/", stage.relay_url());
        println!("  logs        {}", stage.folder().display());
        ended(&arguments).await;
    }
    stage.end().await?;
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Waits for an interrupt, or for the end of the process that started this.
async fn ended(arguments: &Arguments) {
    let (gone, stdin_ends) = oneshot::channel::<()>();
    if arguments.until_stdin_ends {
        // A separate thread: the runtime would wait for it to end.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            gone.send(())
        });
    }
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        Ok(()) = stdin_ends => {}
    }
}

async fn play(stage: &mut Stage, arguments: &Arguments) -> Result<Verdict> {
    println!("Users live in MongoDB, the events about them go to Kafka, cards are built from the events.\n");
    step(
        1,
        "The outbox is created in the users' own database, and the topic in Kafka",
    );
    for command in [&["migrate"][..], &["topics", "apply"][..]] {
        println!("  pillarbox {}", command.join(" "));
        for line in stage.pillarbox(command).await?.lines() {
            println!("    {}", line.trim());
        }
    }

    step(
        2,
        "The service, Pillarbox and the projection start, each as its own process",
    );
    stage.start_service().await?;
    stage.start_relay()?;
    stage.start_projection()?;
    println!("  the service listens on {}", stage.service_url());

    step(3, "Users are created: each with its event, in one transaction");
    let mut books = Books::default();
    for (name, email) in PEOPLE {
        let user = write(stage, &mut books, "POST", "/users", name, email).await?;
        println!("  {name:<10} is user {user}, version 1, event user.created");
    }

    step(
        4,
        "One more with an address that is taken: the transaction is rolled back, its event with it",
    );
    let body = json!({ "name": "Eve", "email": PEOPLE[0].1 });
    let (status, answer) = stage.call("POST", "/users", Some(&body)).await?;
    ensure!(
        status == 409,
        "a user with Ada's address was answered with {status}: {answer}"
    );
    let rolled_back = text(&answer, "event_id")?;
    println!("  the service says {status}: {}", text(&answer, "error")?);
    println!("  event {rolled_back} was written and is gone");
    books.rolled_back.insert(rolled_back);

    step(
        5,
        "Users are changed; meanwhile Pillarbox and the projection are killed (kill -9) and started again",
    );
    change(stage, &mut books, arguments.changes).await?;

    step(6, &format!("What is in Kafka's topic {TOPIC}"));
    let events = kafka::read(arguments.broker.bootstrap(), &books.written, deadline()).await?;
    kafka::show(&events);

    step(7, "The cards");
    let cards = cards_in_time(stage, &books).await?;
    for card in &cards {
        println!(
            "  {:<10} {:<28} version {:<3} from {} events",
            card.name, card.email, card.version, card.events
        );
    }
    let verdict = Verdict::of(&books, &events, &cards);
    println!("\n{verdict}");
    Ok(verdict)
}

/// Changes the users in turn, and kills Pillarbox and the projection again and again.
async fn change(stage: &mut Stage, books: &mut Books, changes: u32) -> Result<()> {
    let people: Vec<(String, &str)> = books
        .users
        .iter()
        .map(|(id, user)| (id.clone(), user.name))
        .collect();
    let (mut relays, mut projections) = (0, 0);
    for n in 0..changes {
        let (id, name) = &people[n as usize % people.len()];
        let email = format!("{}.{n}@example.com", name.to_lowercase());
        write(stage, books, "PUT", &format!("/users/{id}"), name, &email).await?;
        stage.check()?;
        // Right after a commit: its event is being sent, or its card is being changed.
        match n % KILLED_EVERY {
            5 => {
                stage.kill_relay().await?;
                stage.start_relay()?;
                relays += 1;
            }
            11 => {
                stage.kill_projection().await?;
                stage.start_projection()?;
                projections += 1;
            }
            _ => {}
        }
    }
    println!("  {changes} changes were committed, each with its event user.updated");
    println!("  Pillarbox was killed {relays} times, the projection {projections} times");
    Ok(())
}

/// Returns the user's id.
async fn write(
    stage: &Stage,
    books: &mut Books,
    method: &str,
    path: &str,
    name: &'static str,
    email: &str,
) -> Result<String> {
    let body = json!({ "name": name, "email": email });
    let (status, answer) = stage.call(method, path, Some(&body)).await?;
    ensure!(
        (200..300).contains(&status),
        "{method} {path} was answered with {status}: {answer}"
    );
    let id = text(&answer["user"], "id")?;
    let version = answer["user"]["version"]
        .as_i64()
        .context("a user has a version")?;
    books.written(&id, name, email, version, text(&answer, "event_id")?);
    Ok(id)
}

/// Waits until the cards match the users, and returns them; after the timeout, returns them as they are.
async fn cards_in_time(stage: &mut Stage, books: &Books) -> Result<Vec<Card>> {
    let end = deadline();
    loop {
        let (status, answer) = stage.call("GET", "/cards", None).await?;
        ensure!(status == 200, "GET /cards was answered with {status}: {answer}");
        let cards = answer.as_array().context("cards are a list")?.iter();
        let cards: BTreeMap<String, Card> = cards.map(card).collect::<Result<_>>()?;
        if books
            .users
            .iter()
            .all(|(id, user)| cards.get(id).is_some_and(|card| card.version >= user.version))
            || Instant::now() >= end
        {
            return Ok(cards.into_values().collect());
        }
        stage.check()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn card(answer: &Value) -> Result<(String, Card)> {
    let number = |name: &str| {
        answer[name]
            .as_i64()
            .with_context(|| format!("a card has no {name}"))
    };
    let card = Card {
        id: text(answer, "id")?,
        name: text(answer, "name")?,
        email: text(answer, "email")?,
        version: number("version")?,
        events: number("events")?,
    };
    Ok((card.id.clone(), card))
}

fn text(answer: &Value, name: &str) -> Result<String> {
    match answer[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => bail!("there is no {name} in {answer}"),
    }
}

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

fn step(n: u32, what: &str) {
    println!("\n{n}. {what}");
}

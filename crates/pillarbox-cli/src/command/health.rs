//! `pillarbox health`

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use pillarbox_relay::http_client;
use serde_json::Value;

use crate::{
    config::{self, Settings},
    output::{Answer, Context},
};

/// An answer is a few kilobytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const TOKEN: &str = "PILLARBOX_TOKEN";

/// Ask the relay on this machine whether it is healthy
///
/// For exec probes and scripts. Exits 0 if it is, 1 if it is not and says why, 2 if no relay
/// answers. It asks at `outbox.monitoring.listen`, or else at `outbox.http.listen`. If that needs a
/// token, it sends the one in PILLARBOX_TOKEN.
///
///   pillarbox health                     everything, as /healthz
///   pillarbox health --part publisher    one part: publisher, performance or data
///   pillarbox health --ready             does the relay work on its database? As /readyz
///   pillarbox health --live              does the process answer? As /livez
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Only this part
    #[arg(long, value_enum, conflicts_with_all = ["ready", "live"])]
    part: Option<PartName>,
    /// Only whether the relay works on its database
    #[arg(long, conflicts_with = "live")]
    ready: bool,
    /// Only whether the process answers
    #[arg(long)]
    live: bool,
    /// Where the relay serves HTTP
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,
    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum PartName {
    Publisher,
    Performance,
    Data,
}

impl PartName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Performance => "performance",
            Self::Data => "data",
        }
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let address = match args.address {
        Some(address) => address,
        None => address(&config::settings(&context.sources())?)?,
    };
    let path = match (args.live, args.ready) {
        (true, _) => "livez",
        (_, true) => "readyz",
        _ => "healthz",
    };
    let (status, body) = ask(&format!("http://{address}/{path}"), args.timeout).await?;
    if matches!(status, 401 | 403) {
        bail!(
            "{address} answered {status}. Set PILLARBOX_TOKEN to a token with the role `read`, or let the relay serve its health at `outbox.monitoring.listen`"
        );
    }
    if path != "healthz" {
        let problem: Option<Value> = serde_json::from_str(&body).ok();
        let problem = problem.as_ref().and_then(|problem| problem["error"].as_str());
        context.print(problem.unwrap_or(body.trim()))?;
        return Ok(answer(status == 200));
    }
    let health: Value = serde_json::from_str(&body)
        .ok()
        .filter(|health: &Value| health["parts"].is_object())
        .ok_or_else(|| anyhow!("{address} answered {status}, but it is not a relay's /healthz"))?;
    let shown = match args.part {
        Some(part) => &health["parts"][part.as_str()],
        None => &health,
    };
    let healthy = shown["healthy"] == true;
    if context.json {
        context.print_json(shown)?;
    } else if healthy {
        context.print(&context.good("healthy"))?;
    } else {
        for (part, problem) in problems(&health, args.part) {
            context.print(&format!("{}: {problem}", context.bad(part)))?;
        }
    }
    Ok(answer(healthy))
}

fn answer(yes: bool) -> Answer {
    if yes { Answer::Yes } else { Answer::No }
}

fn problems(health: &Value, only: Option<PartName>) -> Vec<(&'static str, &str)> {
    let parts = [PartName::Publisher, PartName::Performance, PartName::Data];
    let parts = parts.map(PartName::as_str).into_iter();
    parts
        .filter(|part| only.is_none_or(|only| only.as_str() == *part))
        .flat_map(|part| {
            let problems = health["parts"][part]["problems"].as_array();
            let texts = problems.into_iter().flatten().filter_map(Value::as_str);
            texts.map(move |text| (part, text))
        })
        .collect()
}

/// Where a relay with this configuration serves its health.
fn address(settings: &Settings) -> Result<SocketAddr> {
    if !settings.monitoring.health_checks {
        bail!("`outbox.monitoring.enable_health_checks` is false, so relays serve no health checks");
    }
    if settings.monitoring.listen.is_none() && settings.http.tls.is_some() {
        bail!(
            "the relay serves HTTPS for other names: let it serve its health at `outbox.monitoring.listen`"
        );
    }
    let mut address = settings.monitoring.listen.unwrap_or(settings.http.listen);
    if address.port() == 0 {
        bail!("the relay takes a free port ({address}): name it with --address 127.0.0.1:PORT");
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    Ok(address)
}

async fn ask(url: &str, timeout: u64) -> Result<(u16, String)> {
    let client = http_client::client(Duration::from_secs(timeout))?;
    let mut request = client.get(url);
    if let Ok(token) = std::env::var(TOKEN) {
        request = request.bearer_auth(token);
    }
    let answer = request.send().await;
    let answer = answer.with_context(|| {
        format!("no relay answers at {url} within {timeout} s. Does `pillarbox run` serve HTTP there?")
    })?;
    let status = answer.status().as_u16();
    let body = http_client::body(answer, ANSWER_BYTES_MAX).await?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

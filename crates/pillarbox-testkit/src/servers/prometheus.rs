//! A Prometheus that scrapes one program every second.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use super::found;
use super::postgres::blocking;
use super::service::{Service, on_a_free_port};

/// A running Prometheus.
pub struct Prometheus {
    _service: Service,
    port: u16,
}

impl Prometheus {
    /// Starts one that scrapes `target` (`address:port`) as the job `pillarbox`, with these alert rules. `None`: it is
    /// not installed.
    pub async fn start(target: &str, rules: &Path) -> Option<Self> {
        let binary = found::prometheus()?.join("prometheus");
        let (target, rules) = (target.to_owned(), fs::canonicalize(rules).ok()?);
        let prometheus = blocking(move || {
            on_a_free_port(|port| {
                let mut service = Service::new("prometheus", None, "KILL")?;
                let folder = service.folder().to_owned();
                let configuration = format!(
                    "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
                     rule_files: [{:?}]\n\
                     scrape_configs:\n  - {{ job_name: pillarbox, static_configs: [{{ targets: [{target:?}] }}] }}\n",
                    rules.display().to_string()
                );
                fs::write(folder.join("prometheus.yml"), configuration)?;
                let mut command = service.command(&binary);
                command
                    .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
                    .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
                    .arg(format!("--web.listen-address=127.0.0.1:{port}"));
                service.spawn(command)?;
                service.wait_until(|_| get(port, "/-/ready").is_some_and(|(code, _)| code == 200))?;
                Ok(Self {
                    _service: service,
                    port,
                })
            })
        })
        .await;
        Some(prometheus)
    }

    /// The series that a query returns now. `Err`: the query is wrong.
    pub fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (_, body) =
            get(self.port, &format!("/api/v1/query?query={query}")).ok_or("Prometheus does not answer")?;
        let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
        match answer["data"]["result"].as_array() {
            Some(series) if answer["status"] == "success" => Ok(series.clone()),
            _ => Err(answer["error"].to_string()),
        }
    }
}

/// Returns the status and the body.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    // HTTP/1.0: the connection ends with the answer, which comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

//! One request to the service, as plain HTTP on loopback.

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const ANSWER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The status and the body.
pub(super) async fn json(url: &str, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
    let host = url.trim_start_matches("http://");
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(host)
        .await
        .context("the service can't be reached")?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection
        .take(ANSWER_BYTES_MAX)
        .read_to_string(&mut answer)
        .await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the service gave no answer")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    Ok((status.context("the service's answer has no status")?, body))
}

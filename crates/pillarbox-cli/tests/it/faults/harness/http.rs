//! What the HTTP API of a relay returns.

use pillarbox_testkit::wait;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Returns the status and the body.
pub(in super::super) async fn get(address: &str, path: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap())
}

/// Repeats the request until the answer is as wanted.
pub(in super::super) async fn healthz_until(address: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
    wait::until_ok(async || {
        let (code, body) = get(address, "/healthz").await;
        if wanted(code, &body) {
            return Ok(body);
        }
        Err(format!("/healthz still says {code}: {body}"))
    })
    .await
}

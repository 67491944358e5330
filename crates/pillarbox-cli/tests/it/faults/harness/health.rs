//! What a relay says at `/healthz`.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::PATIENCE;

/// The code and the body.
pub(in super::super) async fn healthz(address: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap())
}

/// Asks until it says what is wanted.
pub(in super::super) async fn healthz_until(address: &str, wanted: impl Fn(u16, &Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, body) = healthz(address).await;
        if wanted(code, &body) {
            return body;
        }
        assert!(Instant::now() < deadline, "/healthz still says {code}: {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

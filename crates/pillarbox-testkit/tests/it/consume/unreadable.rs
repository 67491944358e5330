//! Messages on JetStream that the client can't read.

use std::time::Duration;

use async_nats::jetstream;
use pillarbox::consume::JetStream;
use pillarbox_testkit::{consumer::events, servers::Nats};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::harness::{Published, consumer, effects, note, pool, publish_nats, stream, until};

/// Publishes as a client in another language can: the server accepts headers that are not UTF-8.
async fn publish_by_hand(url: &str, subject: &str, (id, key, version): &Published) {
    let address = url.trim_start_matches("nats://");
    let mut server = TcpStream::connect(address).await.unwrap();
    let mut headers = Vec::from(
        format!(
            "NATS/1.0\r\nPillarbox-Id: {id}\r\nPillarbox-Event-Type: Changed\r\nPillarbox-Aggregate-Type: thing\r\n\
             Pillarbox-Aggregate-Id: {key}\r\nPillarbox-Aggregate-Version: {version}\r\nPillarbox-Key: {key}\r\nNote: "
        )
        .as_bytes(),
    );
    headers.extend_from_slice(b"gr\xf6\xdfe\r\n\r\n");
    let body = b"{\"n\":1}";
    let connect = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"lang\":\"x\",\"version\":\"1\"}\r\n";
    let publish = format!(
        "HPUB {subject} {} {}\r\n",
        headers.len(),
        headers.len() + body.len()
    );
    let parts = [
        connect.as_bytes(),
        publish.as_bytes(),
        &headers,
        body,
        b"\r\nPING\r\n",
    ];
    server.write_all(&parts.concat()).await.unwrap();
    let mut said = Vec::new();
    while !said.windows(4).any(|words| words == b"PONG") {
        assert!(
            server.read_buf(&mut said).await.unwrap() > 0,
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
}

async fn acknowledged(context: &jetstream::Context) -> bool {
    let stream = context.get_stream("THINGS").await.unwrap();
    match stream.consumer_info("effects").await {
        Ok(info) => (info.num_ack_pending, info.num_pending) == (0, 0),
        // The connection has just been closed.
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_bad_headers_does_not_stop_the_consumer() {
    let Some(nats) = Nats::start().await else { return };
    let Some((url, effects)) = effects().await else {
        return;
    };
    let context = stream(&nats.url(), "THINGS").await;
    let events = events(12, 3, 12);
    publish_nats(&context, "THINGS.changed", &events[..5]).await;
    publish_by_hand(&nats.url(), "THINGS.changed", &events[5]).await;
    publish_nats(&context, "THINGS.changed", &events[6..]).await;
    // The consumer has its own connection; this one is for the test.
    let client = async_nats::connect(nats.url()).await.unwrap();
    let things = JetStream::new(jetstream::new(client.clone()), "THINGS").ack_wait(Duration::from_secs(3));
    let pool = pool(&url).await;
    let running = consumer(&pool).start_fn(things, note).await.unwrap();
    effects.reach(12).await;
    until("all is acknowledged", async || acknowledged(&context).await).await;
    running.stop().await.unwrap();
    effects.assert_whole(&events).await;
    let connects = client
        .statistics()
        .connects
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(connects < 10, "the connection broke off {connects} times");
}

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use axum::{Extension, body::Body, routing::get};
use bytes::Bytes;
use futures::stream;
use pillarbox_testkit::wait;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Notify, Semaphore},
    time::{Instant, timeout},
};

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);
const WRITE_TIME_MAX: Duration = Duration::from_millis(300);

/// A server with one answer. Its body holds the place and waits for a signal before each part.
async fn served(place: Arc<Semaphore>, word: Option<Arc<Notify>>) -> SocketAddr {
    let answer = move || {
        let (place, word) = (place.clone(), word.clone());
        async move {
            let place = place.acquire_owned().await.unwrap();
            let parts = stream::unfold((place, word), |(place, word)| async move {
                if let Some(word) = &word {
                    word.notified().await;
                }
                let part = Ok::<_, Infallible>(Bytes::from(vec![b'x'; 64 * 1024]));
                Some((part, (place, word)))
            });
            Body::from_stream(parts)
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(answer));
    tokio::spawn(serve(
        listener,
        router,
        None,
        Limits {
            connections_max: 512,
            write_time_max: WRITE_TIME_MAX,
        },
        CancellationToken::new(),
    ));
    address
}

async fn asked(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write_all(request).await.unwrap();
    client
}

async fn until_free(place: &Semaphore) {
    let free = timeout(DEADLINE, place.acquire()).await;
    drop(free.expect("its place is free").unwrap());
}

async fn until_taken(place: &Semaphore) {
    wait::until("the answer begins", async || place.available_permits() == 0).await;
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_place() {
    let place = Arc::new(Semaphore::new(1));
    let client = asked(served(place.clone(), None).await).await;
    until_taken(&place).await;
    until_free(&place).await;
    drop(client);
}

/// It reads a little now and then, so that it is never silent for long.
#[tokio::test]
async fn a_client_that_reads_too_slowly_loses_its_place_at_the_deadline_of_its_answer() {
    const READ_BY: Duration = Duration::from_secs(2);
    let place = Arc::new(Semaphore::new(1));
    let body_place = place.clone();
    let answer = move |Extension(read_by): Extension<ReadBy>| {
        let place = body_place.clone();
        async move {
            let place = place.acquire_owned().await.unwrap();
            read_by.set(Some(Instant::now() + READ_BY));
            let parts = stream::unfold(place, |place| async move {
                let part = Ok::<_, Infallible>(Bytes::from(vec![b'x'; 64 * 1024]));
                Some((part, place))
            });
            Body::from_stream(parts)
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        connections_max: 512,
        write_time_max: Duration::from_secs(30),
    };
    let router = Router::new().route("/", get(answer));
    tokio::spawn(serve(listener, router, None, limits, CancellationToken::new()));
    let begin = Instant::now();
    let mut client = asked(address).await;
    until_taken(&place).await;
    let mut read = vec![0; 64 * 1024];
    while place.available_permits() == 0 {
        assert!(begin.elapsed() < DEADLINE, "it keeps its place");
        let _ = timeout(Duration::from_millis(50), client.read(&mut read)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begin.elapsed() >= READ_BY, "after {:?}", begin.elapsed());
}

#[tokio::test]
async fn a_client_with_nothing_to_read_keeps_its_place() {
    let (place, word) = (Arc::new(Semaphore::new(1)), Arc::new(Notify::new()));
    let mut client = asked(served(place.clone(), Some(word.clone())).await).await;
    until_taken(&place).await;
    let longer = timeout(3 * WRITE_TIME_MAX, place.acquire()).await;
    assert!(longer.is_err(), "it was disconnected");
    // A client that begins to read gets everything.
    let mut read = vec![0; 64 * 1024];
    for _ in 0..4 {
        word.notify_one();
        timeout(DEADLINE, client.read_exact(&mut read))
            .await
            .unwrap()
            .unwrap();
    }
    drop(client);
    word.notify_one();
    word.notify_one();
    until_free(&place).await;
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let address = served(Arc::new(Semaphore::new(1)), None).await;
    let status = async |bytes: usize| {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(bytes)
        );
        // The answer may arrive, and the connection end, before the whole head is read.
        let _ = client.write_all(head.as_bytes()).await;
        let mut line = [0; 12];
        let read = timeout(DEADLINE, client.read_exact(&mut line)).await;
        read.expect("an answer").unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    };
    assert_eq!(status(HEAD_BYTES_MAX - 1_000).await, "HTTP/1.1 200");
    assert_eq!(status(HEAD_BYTES_MAX).await, "HTTP/1.1 431");
}

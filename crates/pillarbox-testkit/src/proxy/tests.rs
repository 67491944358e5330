use std::io::ErrorKind;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(10);
const A_WHILE: Duration = Duration::from_millis(150);

/// A server that echoes every byte, and a proxy in front of it. The channel has what the server received.
async fn echo() -> (Proxy, tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let (got, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let got = got.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    let _ = got.send(bytes[..read].to_vec());
                    if stream.write_all(&bytes[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (Proxy::start(target).await, heard)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    timeout(SOON, TcpStream::connect(proxy.address()))
        .await
        .unwrap()
        .unwrap()
}

async fn ask(stream: &mut TcpStream, question: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(question).await?;
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// How the connection ended, from the client's view.
async fn ending(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    let mut rest = Vec::new();
    timeout(SOON, stream.read_to_end(&mut rest))
        .await
        .unwrap()
        .map_err(|error| error.kind())
}

#[tokio::test]
async fn traffic_is_forwarded_and_counted() {
    let (proxy, _heard) = echo().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, b"hello").await.unwrap(), b"hello");
    assert_eq!(
        (
            proxy.connections(),
            proxy.bytes_to_target(),
            proxy.bytes_to_client()
        ),
        (1, 5, 5)
    );
    stream.shutdown().await.unwrap();
    assert_eq!(ending(&mut stream).await, Ok(0));
}

#[tokio::test]
async fn a_refusing_proxy_closes_connections_and_accepts_none() {
    let (proxy, _heard) = echo().await;
    let mut stream = connect(&proxy).await;
    ask(&mut stream, b"hello").await.unwrap();
    proxy.set(Fault::Refuse).await;
    assert_eq!(ending(&mut stream).await, Ok(0));
    assert_eq!(
        TcpStream::connect(proxy.address()).await.unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    proxy.set(Fault::Pass).await;
    assert_eq!(ask(&mut connect(&proxy).await, b"again").await.unwrap(), b"again");
}

#[tokio::test]
async fn a_reset_is_an_error_and_not_an_end() {
    let (proxy, _heard) = echo().await;
    let mut stream = connect(&proxy).await;
    ask(&mut stream, b"hello").await.unwrap();
    proxy.set(Fault::Reset).await;
    assert_eq!(ending(&mut stream).await, Err(ErrorKind::ConnectionReset));
    let mut new = connect(&proxy).await;
    assert_eq!(ending(&mut new).await, Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_black_hole_swallows_both_ways_and_the_connection_does_not_survive_it() {
    let (proxy, mut heard) = echo().await;
    let mut old = connect(&proxy).await;
    ask(&mut old, b"hello").await.unwrap();
    assert_eq!(heard.recv().await.unwrap(), b"hello");
    proxy.set(Fault::BlackHole).await;
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        assert!(timeout(A_WHILE, ask(stream, b"lost")).await.is_err());
    }
    assert!(heard.try_recv().is_err());
    proxy.set(Fault::Pass).await;
    for stream in [&mut old, &mut new] {
        assert_eq!(ending(stream).await, Err(ErrorKind::ConnectionReset));
    }
}

#[tokio::test]
async fn a_delay_holds_up_both_ways() {
    let (proxy, _heard) = echo().await;
    let mut stream = connect(&proxy).await;
    ask(&mut stream, b"quick").await.unwrap();
    proxy.set(Fault::Delay(A_WHILE)).await;
    let asked = Instant::now();
    assert_eq!(ask(&mut stream, b"slow").await.unwrap(), b"slow");
    assert!(asked.elapsed() >= 2 * A_WHILE, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_cut_lets_exactly_so_many_bytes_through() {
    let (proxy, mut heard) = echo().await;
    let mut old = connect(&proxy).await;
    ask(&mut old, b"hello").await.unwrap();
    heard.recv().await.unwrap();
    proxy.set(Fault::CutAfter(4)).await;
    for mut stream in [old, connect(&proxy).await] {
        stream.write_all(b"123456").await.unwrap();
        let mut got = Vec::new();
        while got.len() < 4 {
            got.extend(timeout(SOON, heard.recv()).await.unwrap().unwrap());
        }
        assert_eq!(got, b"1234");
        let _ = ending(&mut stream).await;
    }
    assert_eq!(proxy.bytes_to_target(), 5 + 4 + 4);
}

#[tokio::test]
async fn dropped_replies_leave_the_work_done() {
    let (proxy, mut heard) = echo().await;
    let mut stream = connect(&proxy).await;
    proxy.set(Fault::DropReplies).await;
    assert!(timeout(A_WHILE, ask(&mut stream, b"do it")).await.is_err());
    assert_eq!(heard.recv().await.unwrap(), b"do it");
    assert_eq!(proxy.bytes_to_client(), 0);
    proxy.set(Fault::Pass).await;
    assert_eq!(ending(&mut stream).await, Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_pause_loses_nothing() {
    let (proxy, mut heard) = echo().await;
    let mut old = connect(&proxy).await;
    ask(&mut old, b"hello").await.unwrap();
    heard.recv().await.unwrap();
    proxy.set(Fault::Pause).await;
    let mut new = connect(&proxy).await;
    for stream in [&mut old, &mut new] {
        stream.write_all(b"later").await.unwrap();
        assert!(timeout(A_WHILE, stream.peek(&mut [0])).await.is_err());
    }
    assert!(heard.try_recv().is_err());
    proxy.set(Fault::Pass).await;
    for stream in [&mut old, &mut new] {
        let mut answer = [0; 5];
        timeout(SOON, stream.read_exact(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&answer, b"later");
    }
}

#[tokio::test]
async fn a_url_is_led_through_the_proxy() {
    let proxy = Proxy::in_front_of("postgres://app@127.0.0.1:5432/shop?x=1").await;
    let through = proxy.through("postgres://app@127.0.0.1:5432/shop?x=1");
    assert_eq!(through, format!("postgres://app@{}/shop?x=1", proxy.address()));
}

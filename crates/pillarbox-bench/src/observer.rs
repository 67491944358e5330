//! What observes a relay: something that scrapes its metrics, and something that receives its spans.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
const SCRAPE_TIME_MAX: Duration = Duration::from_secs(5);
const DROPPED: &str = "outbox_trace_spans_dropped_total ";

/// A free port for a relay's metrics.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// Receives spans by OTLP over HTTP, and drops them.
pub(super) struct Collector {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Collector {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = bytes.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = counted.clone();
                // The relay may end in the middle of a request.
                tokio::spawn(async move { receive(stream, &counted).await });
            }
        });
        Ok(Self { address, bytes, task })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request after the other.
async fn receive(stream: TcpStream, bytes: &AtomicU64) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await?;
        bytes.fetch_add(length, Ordering::Relaxed);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await?;
    }
}

/// Scrapes a relay once a second, as soon as it is there.
pub(super) struct Scraper {
    pub(super) address: SocketAddr,
    scrapes: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Scraper {
    pub(super) fn start(address: SocketAddr) -> Self {
        let (scrapes, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counted, last) = (scrapes.clone(), dropped.clone());
        let task = tokio::spawn(async move {
            loop {
                let scraped = tokio::time::timeout(SCRAPE_TIME_MAX, scrape(address)).await;
                if let Ok(Ok(spans_dropped)) = scraped {
                    counted.fetch_add(1, Ordering::Relaxed);
                    last.store(spans_dropped, Ordering::Relaxed);
                }
                tokio::time::sleep(SCRAPE_INTERVAL).await;
            }
        });
        Self {
            address,
            scrapes,
            dropped,
            task,
        }
    }

    /// How many scrapes there were, and how many spans were dropped until the last one.
    pub(super) fn stop(self) -> (u64, u64) {
        self.task.abort();
        (
            self.scrapes.load(Ordering::Relaxed),
            self.dropped.load(Ordering::Relaxed),
        )
    }
}

/// Returns the number of dropped spans.
async fn scrape(address: SocketAddr) -> io::Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let value = text.lines().find_map(|line| line.strip_prefix(DROPPED));
    value
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| io::Error::other("the relay serves no metrics yet"))
}

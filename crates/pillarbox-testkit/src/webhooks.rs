//! A receiver of webhooks on loopback that records what arrives, and its verification by the reference
//! implementation of Standard Webhooks (`python/verify.py`), which is independent of this project.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};

use crate::servers;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/verify.py");
const PATIENCE: Duration = Duration::from_secs(20);

/// A received request, with header names in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Request {
    /// # Panics
    /// If the body is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn id(&self) -> &str {
        self.headers.get("webhook-id").map_or("", String::as_str)
    }

    /// Whether the reference implementation accepts it. `None`: it is not installed.
    ///
    /// # Panics
    /// If it can't be run.
    pub fn verified(&self, secret: &str) -> Option<bool> {
        let python = servers::webhooks_python()?;
        let mut child = Command::new(python)
            .args([SCRIPT, secret])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run Python: {error}"));
        let given = json!({ "headers": self.headers, "body": self.body }).to_string();
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(given.as_bytes());
        }
        let output = child
            .wait_with_output()
            .unwrap_or_else(|error| panic!("cannot wait for Python: {error}"));
        match output.status.code() {
            Some(0) => Some(true),
            Some(1) if !output.stderr.starts_with(b"Traceback") => Some(false),
            _ => panic!(
                "{SCRIPT} gave no verdict: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }
}

/// Accepts requests until it is dropped.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    requests: Mutex<Vec<Request>>,
    status: AtomicU16,
    stop: AtomicBool,
}

impl Receiver {
    /// On a free port; answers 204.
    pub fn start() -> Self {
        Self::start_at(0)
    }

    /// # Panics
    /// If the port is in use.
    pub fn start_at(port: u16) -> Self {
        let listener =
            TcpListener::bind(("127.0.0.1", port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
        let address = listener
            .local_addr()
            .unwrap_or_else(|error| panic!("no address: {error}"));
        let shared = Arc::new(Shared {
            requests: Mutex::new(Vec::new()),
            status: AtomicU16::new(204),
            stop: AtomicBool::new(false),
        });
        let inner = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if inner.stop.load(Ordering::SeqCst) {
                    return;
                }
                // A client that disconnected in the middle sent no request.
                let _ = inner.answer(stream);
            }
        });
        Self {
            address,
            shared,
            thread: Some(thread),
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the answer from now on.
    pub fn answer(&self, status: u16) {
        self.shared.status.store(status, Ordering::SeqCst);
    }

    pub fn requests(&self) -> Vec<Request> {
        let requests = self.shared.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let request = Request {
            path: first.split(' ').nth(1).unwrap_or_default().to_owned(),
            headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        let status = self.status.load(Ordering::SeqCst);
        let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        reader.into_inner().write_all(answer.as_bytes())
    }
}

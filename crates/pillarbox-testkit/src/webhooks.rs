//! A receiver of webhooks on loopback that records what arrives, and its verification by the reference
//! implementation of Standard Webhooks (`python/verify.py`), which is independent of this project.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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

/// How a receiver answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Status(u16),
    /// A status, after a while.
    Late(Duration, u16),
    /// A status with `Retry-After`, in seconds.
    RetryAfter(u64, u16),
    /// 307 to this port.
    Redirect(u16),
    /// A status, and a body that never ends.
    Endless(u16),
    /// Closes the connection without an answer.
    Break,
}

type Chooser = Box<dyn Fn(&Request) -> Reply + Send>;

/// Accepts requests until it is dropped. Requests without a body are answered and not recorded.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    requests: Mutex<Vec<Request>>,
    reply: Mutex<Chooser>,
    /// Requests that wait for their answer now, and the most at one time.
    waiting: AtomicUsize,
    waiting_max: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
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
            reply: Mutex::new(Box::new(|_| Reply::Status(204))),
            waiting: AtomicUsize::new(0),
            waiting_max: AtomicUsize::new(0),
            connections: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let inner = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if inner.stop.load(Ordering::SeqCst) {
                    return;
                }
                lock(&inner.connections).extend(stream.try_clone());
                let inner = inner.clone();
                // A client that disconnected in the middle sent no request.
                std::thread::spawn(move || inner.answer(stream));
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
        self.answer_by(move |_| Reply::Status(status));
    }

    /// Lets a function choose each answer from now on.
    pub fn answer_by(&self, reply: impl Fn(&Request) -> Reply + Send + 'static) {
        *lock(&self.shared.reply) = Box::new(reply);
    }

    pub fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    /// The most requests that were waiting for their answers at one time.
    pub fn waiting_max(&self) -> usize {
        self.shared.waiting_max.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for connection in lock(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Answers the requests of one connection.
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream);
        while !self.stop.load(Ordering::SeqCst) {
            let Some(request) = read(&mut reader)? else {
                return Ok(());
            };
            let waiting = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
            self.waiting_max.fetch_max(waiting, Ordering::SeqCst);
            let reply = lock(&self.reply)(&request);
            if !request.body.is_empty() {
                lock(&self.requests).push(request);
            }
            if let Reply::Late(wait, _) = reply {
                std::thread::sleep(wait);
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            let (status, header) = match reply {
                Reply::Status(status) | Reply::Late(_, status) => (status, String::new()),
                Reply::RetryAfter(seconds, status) => (status, format!("Retry-After: {seconds}\r\n")),
                Reply::Redirect(port) => (307, format!("Location: http://127.0.0.1:{port}/\r\n")),
                Reply::Break => return reader.get_ref().shutdown(Shutdown::Both),
                Reply::Endless(status) => return endless(reader.get_mut(), status),
            };
            let answer = format!("HTTP/1.1 {status} x\r\n{header}Content-Length: 0\r\n\r\n");
            reader.get_mut().write_all(answer.as_bytes())?;
        }
        Ok(())
    }
}

/// Until the client closes the connection.
fn endless(stream: &mut TcpStream, status: u16) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status} x\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    loop {
        stream.write_all(b"400\r\n")?;
        stream.write_all(&[b'x'; 0x400])?;
        stream.write_all(b"\r\n")?;
    }
}

/// The next request of a connection; `None` at its end.
fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
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
    Ok(Some(Request {
        path: first.split(' ').nth(1).unwrap_or_default().to_owned(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }))
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

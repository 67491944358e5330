//! A stub of a schema registry's HTTP API, as far as the relay uses it. It is not a registry: a real one is a
//! Java service that is not available here. It answers `GET /subjects/{subject}/versions/{version}` and can
//! be away, slow, broken or return nonsense. It can also speak TLS.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    task::JoinHandle,
};

use crate::tls_server::TlsServer;

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    #[default]
    Answers,
    /// Accepts the connection and closes it.
    Away,
    /// Answers after this time.
    Slow(Duration),
    /// Answers everything with this status.
    Status(u16),
    /// Returns 200 with a body that is not an answer of a registry.
    Garbage,
}

#[derive(Default)]
struct State {
    schemas: HashMap<(String, i32), (String, String)>,
    manner: Manner,
    /// The required value of `authorization`.
    authorization: Option<String>,
    requests: Vec<String>,
}

/// A running stub on its own port, until it is dropped.
pub struct SchemaRegistryStub {
    scheme: &'static str,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl SchemaRegistryStub {
    pub async fn start() -> io::Result<Self> {
        Self::start_with(None).await
    }

    /// With https.
    pub async fn start_secure(tls: TlsServer) -> io::Result<Self> {
        Self::start_with(Some(tls)).await
    }

    async fn start_with(tls: Option<TlsServer>) -> io::Result<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let task = tokio::spawn(serve(listener, tls, state.clone()));
        Ok(Self {
            scheme,
            address,
            state,
            task,
        })
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// The URL with a user and a password in it.
    pub fn url_with(&self, user: &str) -> String {
        format!("{}://{user}@{}", self.scheme, self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn put(&self, subject: &str, version: i32, schema: &str) {
        self.put_as("JSON", subject, version, schema);
    }

    pub fn put_as(&self, kind: &str, subject: &str, version: i32, schema: &str) {
        let schema = (kind.to_owned(), schema.to_owned());
        lock(&self.state)
            .schemas
            .insert((subject.to_owned(), version), schema);
    }

    pub fn behave(&self, manner: Manner) {
        lock(&self.state).manner = manner;
    }

    /// Requires this header `authorization` from now on.
    pub fn demand(&self, authorization: &str) {
        lock(&self.state).authorization = Some(authorization.to_owned());
    }

    /// The requested paths, in order.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.state).requests.clone()
    }
}

impl Drop for SchemaRegistryStub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, tls: Option<TlsServer>, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (state, tls) = (state.clone(), tls.clone());
        tokio::spawn(async move {
            // Ignore clients that disconnect.
            let _ = match tls {
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => answer(stream, &state).await,
                    Err(error) => Err(error),
                },
                None => answer(stream, &state).await,
            };
        });
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut authorization = None;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                authorization = Some(value.trim().to_owned());
            }
            Some(_) => {}
            None => break,
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (manner, status, body) = {
        let mut state = lock(state);
        state.requests.push(path.clone());
        let (status, body) = match state.manner {
            Manner::Status(status) => (status, "{}".to_owned()),
            Manner::Garbage => (200, "<html>not here</html>".to_owned()),
            _ if state.authorization.is_some() && state.authorization != authorization => {
                (401, r#"{"error_code":401,"message":"Unauthorized"}"#.to_owned())
            }
            _ => found(&state, &path),
        };
        (state.manner, status, body)
    };
    match manner {
        Manner::Away => return Ok(()),
        Manner::Slow(time) => tokio::time::sleep(time).await,
        _ => {}
    }
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/vnd.schemaregistry.v1+json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// The API's own answers for what it has and what it does not have.
fn found(state: &State, path: &str) -> (u16, String) {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ["subjects", subject, "versions", version] = parts[..] else {
        return (404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#.into());
    };
    let Ok(version) = version.parse::<i32>().map(|n| n.max(0)) else {
        return (422, r#"{"error_code":42202,"message":"Invalid version"}"#.into());
    };
    match state.schemas.get(&(subject.to_owned(), version)) {
        Some((kind, schema)) => {
            let mut body = json!({ "subject": subject, "version": version, "id": 1, "schema": schema });
            // The API omits it for Avro.
            if kind != "AVRO" {
                body["schemaType"] = json!(kind);
            }
            (200, body.to_string())
        }
        None if state.schemas.keys().any(|(known, _)| known == subject) => (
            404,
            r#"{"error_code":40402,"message":"Version not found."}"#.into(),
        ),
        None => (
            404,
            r#"{"error_code":40401,"message":"Subject not found."}"#.into(),
        ),
    }
}

//! A stub of an OpenTelemetry collector: it receives spans by OTLP over HTTP and reads them with the crate of the
//! published format. It is not a collector: none is available here, and the fake ones accept gRPC only.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::wait;

#[derive(Default)]
struct State {
    spans: Vec<Span>,
    resource: Vec<KeyValue>,
    /// The head of the last request, in lower case.
    head: String,
    requests: usize,
    status: Option<u16>,
    rejected_spans: i64,
}

/// A running stub on its own port, until it is dropped.
pub struct CollectorStub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl CollectorStub {
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let task = tokio::spawn(serve(listener, state.clone()));
        Ok(Self { address, state, task })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers everything with this status from now on, and keeps no spans. 200 keeps them again.
    pub fn answer(&self, status: u16) {
        lock(&self.state).status = Some(status).filter(|status| *status != 200);
    }

    /// Says from now on that it rejects so many spans of each request that it accepts.
    pub fn reject(&self, spans: i64) {
        lock(&self.state).rejected_spans = spans;
    }

    /// The head of the last request, in lower case.
    pub fn head(&self) -> String {
        lock(&self.state).head.clone()
    }

    /// How many requests came so far.
    pub fn requests(&self) -> usize {
        lock(&self.state).requests
    }

    /// The value of an attribute that all spans have in common.
    pub fn resource(&self, name: &str) -> Option<String> {
        text_of(&lock(&self.state).resource, name)
    }

    pub fn spans(&self) -> Vec<Span> {
        lock(&self.state).spans.clone()
    }

    /// Waits for so many spans.
    ///
    /// # Panics
    /// If they don't come in time.
    pub async fn until(&self, count: usize) -> Vec<Span> {
        wait::until_ok(async || {
            let spans = self.spans();
            let names = || {
                spans
                    .iter()
                    .map(|span| &*span.name)
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            match spans.len() >= count {
                true => Ok(spans),
                false => Err(format!("{} of {count} spans: {}", spans.len(), names())),
            }
        })
        .await
    }
}

impl Drop for CollectorStub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The value of a span's attribute, as text.
pub fn attribute(span: &Span, name: &str) -> Option<String> {
    text_of(&span.attributes, name)
}

/// The `traceparent` of a message whose parent is this span.
pub fn traceparent(span: &Span) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

fn text_of(attributes: &[KeyValue], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        tokio::spawn(async move {
            // Ignore clients that disconnect.
            let _ = answer(stream, &state).await;
        });
    }
}

async fn answer(stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let request = ExportTraceServiceRequest::decode(&*body);
    let (status, rejected_spans) = {
        let mut state = lock(state);
        let posted = head.starts_with("post /v1/traces ");
        state.head = head;
        state.requests += 1;
        let status = match (state.status, request) {
            (Some(status), _) => status,
            (None, Ok(request)) if posted => {
                for of_resource in request.resource_spans {
                    state.resource = of_resource.resource.unwrap_or_default().attributes;
                    let of_scopes = of_resource.scope_spans.into_iter();
                    state.spans.extend(of_scopes.flat_map(|of_scope| of_scope.spans));
                }
                200
            }
            (None, Ok(_)) => 404,
            (None, Err(_)) => 400,
        };
        (status, state.rejected_spans)
    };
    let partial_success = (rejected_spans > 0).then(|| ExportTracePartialSuccess {
        rejected_spans,
        error_message: "rejected by the stub".into(),
    });
    let body = ExportTraceServiceResponse { partial_success }.encode_to_vec();
    let length = body.len();
    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

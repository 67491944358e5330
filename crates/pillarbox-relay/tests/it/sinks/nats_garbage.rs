//! A stub that speaks NATS, often wrongly.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox_relay::{
    Sink,
    connect::SinkOptions,
    sink::{Outcome, SinkErrorKind, nats::NatsSink},
};
use pillarbox_testkit::{
    contract::sink::{event, outgoing},
    fuzz::{self, Fuzz, SECRET, assert_says_something},
    torture::Campaign,
    wait,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};

const INFO: &str = r#"{"server_id":"S","server_name":"stub","version":"2.15.1","proto":1,"headers":true,"max_payload":1048576,"jetstream":true,"client_id":7,"host":"127.0.0.1","port":4222}"#;
const ACKNOWLEDGEMENT: &str = r#"{"stream":"S","seq":7,"duplicate":false}"#;
const REFUSAL: &str =
    r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"S","seq":0}"#;

/// The stub's answer to the next event.
#[derive(Debug, Clone, Default)]
struct Answer {
    payload: Vec<u8>,
    /// The seed that mangles the whole message around the payload. `None`: the message is correct.
    mangled: Option<u64>,
    /// The greeting of a new connection.
    info: Vec<u8>,
}

fn answer(fuzz: &mut Fuzz, nth: u64) -> Answer {
    let example = fuzz.pick(&[ACKNOWLEDGEMENT, ACKNOWLEDGEMENT, REFUSAL]);
    Answer {
        payload: if fuzz.one_in(4) {
            example.into()
        } else if fuzz.one_in(8) {
            fuzz.json().into_bytes()
        } else {
            fuzz.mutated(example.as_bytes())
        },
        mangled: fuzz.one_in(5).then_some(nth),
        info: if fuzz.one_in(5) {
            fuzz.mutated(INFO.as_bytes())
        } else {
            INFO.into()
        },
    }
}

/// Whether JetStream could mean by this answer that the event is stored.
fn means_stored(payload: &[u8]) -> bool {
    // `Value` is not used: it fails on deep nesting in fields that are not needed here.
    #[derive(serde::Deserialize)]
    struct Said<'a> {
        #[serde(borrow)]
        stream: std::borrow::Cow<'a, str>,
        seq: u64,
        error: Option<serde::de::IgnoredAny>,
    }
    let said = serde_json::from_slice::<Said<'_>>(payload);
    said.is_ok_and(|said| said.stream.len() < payload.len() && said.seq > 0 && said.error.is_none())
}

/// The broker. It greets every connection and answers every event with `next`.
struct Stub {
    next: Mutex<Answer>,
    /// How many events it has answered.
    answered: AtomicU64,
    hang_up: Notify,
    campaign: Campaign,
}

impl Stub {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let info = self.next.lock().unwrap().info.clone();
        stream.write_all(&[b"INFO ", &info[..], b"\r\n"].concat()).await?;
        let (mut line, mut sid) = (String::new(), String::from("1"));
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["PING"] => stream.write_all(b"PONG\r\n").await?,
                ["SUB", _, number] => number.clone_into(&mut sid),
                ["HPUB", _, reply, _, length] => {
                    let mut event = vec![0; length.parse::<usize>().unwrap() + 2];
                    stream.read_exact(&mut event).await?;
                    let answer = self.next.lock().unwrap().clone();
                    let head = format!("MSG {reply} {sid} {}\r\n", answer.payload.len());
                    let mut said = [head.as_bytes(), &answer.payload, b"\r\n"].concat();
                    if let Some(nth) = answer.mangled {
                        said = Fuzz::new(&self.campaign, nth).mutated(&said);
                    }
                    self.answered.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(&said).await?;
                    if answer.mangled.is_some() {
                        // After a mangled message, the client can't tell where the next one begins.
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }

    async fn listen(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let stub = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = stub.serve(stream) => {}
                    () = stub.hang_up.notified() => {}
                }
            });
        }
    }
}

/// Publishes until the stub has answered. Before that, the sink may have to connect again, or may have been
/// told by the greeting to send nothing.
async fn publish_until_answered(sink: &NatsSink, stub: &Stub, shown: &str) -> Outcome {
    let before = stub.answered.load(Ordering::SeqCst);
    wait::until_ok(async || {
        let batch = [outgoing(event("key", "{}"))];
        let outcomes = timeout(Duration::from_secs(20), sink.publish(&batch)).await;
        let [outcome] = &outcomes.unwrap_or_else(|_| panic!("it hangs: {shown}"))[..] else {
            panic!("one event must have one outcome: {shown}");
        };
        if stub.answered.load(Ordering::SeqCst) > before {
            return Ok(outcome.clone());
        }
        let Outcome::Failed(error) = outcome else {
            panic!("{outcome:?} for an event without an answer: {shown}");
        };
        assert_says_something(&error.to_string());
        // The mangled greeting has been used; send a correct one now.
        stub.next.lock().unwrap().info = INFO.into();
        if error.kind != SinkErrorKind::Unreachable {
            stub.hang_up.notify_waiters();
        }
        Err(format!("it does not come back: {error}: {shown}"))
    })
    .await
}

/// A broker with mangled answers: outcomes come in time, and only an acknowledgement delivers an event.
#[tokio::test(flavor = "multi_thread")]
async fn torture_fuzz_nats_answers() {
    let stub = Arc::new(Stub {
        next: Mutex::default(),
        answered: AtomicU64::new(0),
        hang_up: Notify::new(),
        campaign: Campaign::begin("fuzz_nats_answers"),
    });
    stub.next.lock().unwrap().info = INFO.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://app:{SECRET}@{}", listener.local_addr().unwrap());
    let listening = tokio::spawn(stub.clone().listen(listener));
    let options = SinkOptions {
        publish_timeout: Duration::from_millis(300),
        ..SinkOptions::new(url)
    };
    let sink = NatsSink::open(&options).unwrap();
    let (mut tried, mut delivered) = (0, 0);
    while stub.campaign.goes_on(tried, 1_000) {
        let answer = answer(&mut Fuzz::new(&stub.campaign, tried), tried);
        *stub.next.lock().unwrap() = answer.clone();
        let payload = String::from_utf8_lossy(&answer.payload);
        let shown = format!("input {tried}: {payload:.2000} {:?}", answer.mangled);
        match publish_until_answered(&sink, &stub, &shown).await {
            Outcome::Delivered => {
                delivered += 1;
                assert!(
                    means_stored(&answer.payload) || answer.mangled.is_some(),
                    "{shown}"
                );
            }
            Outcome::Failed(error) => assert_says_something(&error.to_string()),
            Outcome::NotTried => panic!("the event was not tried: {shown}"),
        }
        tried += 1;
    }
    listening.abort();
    assert!(delivered > 0, "no answer was an acknowledgement");
    println!("{delivered} acknowledgements among them");
    fuzz::said(&stub.campaign, tried);
}

/// The length of the message overflows in the client, so its task panics.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_broke_on_an_answer_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let listening = tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            stream
                .write_all(format!("INFO {INFO}\r\n").as_bytes())
                .await
                .unwrap();
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                if line.starts_with("PING") && connection == 0 {
                    let _ = stream
                        .write_all(b"PONG\r\nMSG x 1 18446744073709551615\r\n")
                        .await;
                } else if line.starts_with("PING") {
                    let _ = stream.write_all(b"PONG\r\n").await;
                } else if line.starts_with("HPUB") {
                    let reply = line.split(' ').nth(2).unwrap();
                    let length = ACKNOWLEDGEMENT.len();
                    let said = format!("MSG {reply} 1 {length}\r\n{ACKNOWLEDGEMENT}\r\n");
                    let _ = stream.write_all(said.as_bytes()).await;
                }
                line.clear();
            }
        }
    });
    let options = SinkOptions {
        publish_timeout: Duration::from_millis(300),
        ..SinkOptions::new(url)
    };
    let sink = NatsSink::open(&options).unwrap();
    wait::until("the sink works again", async || {
        sink.publish(&[outgoing(event("key", "{}"))]).await == [Outcome::Delivered]
    })
    .await;
    listening.abort();
}

//! A broker in memory, and the helpers to drive it.

mod database;

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc as threads,
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use self::database::{MEMBER, Memory, Open, STRANGER};
use crate::{
    consume::{
        ConsumeError, Context, Handler, HandlerError, Lag, Options, Received,
        attempt::Work,
        engine::Engine,
        letter::Letter,
        message::Message,
        source::{Incoming, Letters, Note, Source},
    },
    event::EventId,
    inbox::Inbox,
};

/// The arguments of a handler's call.
pub(super) struct Call {
    pub(super) position: u64,
    pub(super) attempt: u32,
    /// The number of earlier calls, for any event.
    pub(super) earlier: usize,
}

struct Scripted<F> {
    script: F,
    calls: Arc<AtomicUsize>,
}

impl<F, R> Handler<Memory> for Scripted<F>
where
    F: Fn(Call) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    /// Writes the effect first: if the handler fails afterwards, no effect may remain.
    async fn handle(&self, _: &Received, context: &Context, tx: &mut Open) -> Result<(), HandlerError> {
        let earlier = self.calls.fetch_add(1, Ordering::SeqCst);
        tx.effects.push(format!("{}{}", context.key, context.position));
        let call = Call {
            position: context.position,
            attempt: context.attempt,
            earlier,
        };
        (self.script)(call).await
    }
}

#[derive(Default)]
struct Letterbox {
    letters: Mutex<Vec<Letter>>,
    away: AtomicBool,
}

impl Letters for Letterbox {
    fn publish(&self, letter: Letter) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            if self.away.load(Ordering::SeqCst) {
                return Err("no such topic".to_owned());
            }
            self.letters.lock().unwrap().push(letter);
            Ok(())
        })
    }
}

pub(super) struct Stage {
    memory: Memory,
    letters: Arc<Letterbox>,
    pub(super) calls: Arc<AtomicUsize>,
    incoming: mpsc::UnboundedSender<Incoming>,
    notes: mpsc::UnboundedReceiver<Note>,
    acknowledged: Vec<u64>,
    closed: bool,
    /// The broker receives the close note and never answers.
    pub(super) broker_away: bool,
    unanswered: Option<oneshot::Sender<()>>,
    lag: watch::Receiver<Lag>,
    stop: Option<oneshot::Sender<()>>,
    engine: Option<JoinHandle<Result<(), ConsumeError>>>,
}

impl Stage {
    pub(super) fn open<F, R>(change: impl FnOnce(&mut Options), script: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        Self::open_on(Memory::default(), change, script)
    }

    /// Simulates that another consumer has died: these positions had begun so many times.
    pub(super) fn open_after_a_death<F, R>(
        begun: &[(u64, u32)],
        change: impl FnOnce(&mut Options),
        script: F,
    ) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let memory = Memory::default();
        let rows = begun.iter().map(|(position, times)| (id(*position), *times));
        memory.tables().begun = rows.chain([(STRANGER.into(), 0)]).collect();
        Self::open_on(memory, change, script)
    }

    fn open_on<F, R>(memory: Memory, change: impl FnOnce(&mut Options), script: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let mut options = Options::default();
        change(&mut options);
        let letters = Arc::new(Letterbox::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let work = Work {
            group: "group".to_owned(),
            member: MEMBER.into(),
            database: memory.clone(),
            inbox: Inbox::default(),
            handler: Scripted {
                script,
                calls: calls.clone(),
            },
            options,
            letters: letters.clone(),
        };
        let (incoming, receiver) = mpsc::unbounded_channel();
        let (notes_sender, notes) = mpsc::unbounded_channel();
        let (_, waiting) = watch::channel(None);
        let source = Source {
            incoming: receiver,
            notes: notes_sender,
            letters: letters.clone(),
            waiting,
        };
        let (lag_sender, lag) = watch::channel(Lag::default());
        let (stop, stopped) = oneshot::channel();
        let engine = tokio::spawn(Engine::new(work, source, lag_sender).run(stopped));
        Self {
            memory,
            letters,
            calls,
            incoming,
            notes,
            acknowledged: Vec::new(),
            closed: false,
            broker_away: false,
            unanswered: None,
            lag,
            stop: Some(stop),
            engine: Some(engine),
        }
    }

    pub(super) fn send(&self, message: Message) {
        self.incoming.send(Incoming::Message(message)).ok().unwrap();
    }

    pub(super) fn revoke(&self, lane: u64) -> threads::Receiver<()> {
        let (quiet, waiting) = threads::channel();
        self.incoming
            .send(Incoming::Revoked { lane, quiet })
            .ok()
            .unwrap();
        waiting
    }

    /// Waits until so many more positions are acknowledged.
    pub(super) async fn done(&mut self, count: usize) {
        let wanted = self.acknowledged.len() + count;
        let waiting = async {
            while self.acknowledged.len() < wanted {
                let note = self.notes.recv().await.unwrap();
                self.noted(note);
            }
        };
        timeout(Duration::from_secs(3_600), waiting).await.unwrap();
    }

    fn noted(&mut self, note: Note) {
        match note {
            Note::Done { position, .. } => self.acknowledged.push(position),
            Note::Close { closed } => {
                self.closed = true;
                self.unanswered = Some(closed).filter(|_| self.broker_away);
            }
            _ => {}
        }
    }

    pub(super) async fn stop(&mut self) {
        drop(self.stop.take());
        let engine = self.engine.take().unwrap();
        while let Some(note) = self.notes.recv().await {
            self.noted(note);
        }
        engine.await.unwrap().unwrap();
    }

    /// The source ends with an error.
    pub(super) async fn end(&mut self, error: ConsumeError) -> ConsumeError {
        self.incoming.send(Incoming::Ended(error)).unwrap();
        let engine = self.engine.take().unwrap();
        while let Some(note) = self.notes.recv().await {
            self.noted(note);
        }
        engine.await.unwrap().unwrap_err()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn acknowledged(&mut self) -> Vec<u64> {
        while let Ok(note) = self.notes.try_recv() {
            self.noted(note);
        }
        self.acknowledged.clone()
    }

    pub(super) fn effects(&self) -> Vec<String> {
        self.memory.tables().effects.clone()
    }

    pub(super) fn processed(&self, position: u64) -> bool {
        self.memory.tables().processed.contains(&id(position))
    }

    /// How often the event has begun without ending.
    pub(super) fn begun(&self, position: u64) -> u32 {
        let tables = self.memory.tables();
        tables.begun.get(&id(position)).copied().unwrap_or_default()
    }

    pub(super) fn letters(&self) -> Vec<Letter> {
        self.letters.letters.lock().unwrap().clone()
    }

    pub(super) fn letters_away(&self, away: bool) {
        self.letters.away.store(away, Ordering::SeqCst);
    }

    pub(super) fn database_away(&self, away: bool) {
        self.memory.tables().away = away;
    }

    pub(super) fn begins(&self) -> usize {
        self.memory.tables().begins
    }

    pub(super) fn conflicts_before_the_handler(&self, times: usize) {
        self.memory.tables().conflicts = times;
    }

    pub(super) fn commits_take(&self, time: Duration) {
        self.memory.tables().commits_take = time;
    }

    pub(super) fn lag(&self) -> Lag {
        self.lag.borrow().clone()
    }
}

fn id(position: u64) -> EventId {
    format!("event {position}").into()
}

pub(super) fn event(position: u64, key: &str) -> Message {
    let header = |name: &str, text: &str| (name.to_owned(), Bytes::from(text.to_owned()));
    Message {
        headers: vec![
            header("Pillarbox-Id", &id(position).to_string()),
            header("Pillarbox-Event-Type", "Changed"),
            header("Pillarbox-Aggregate-Id", key),
            header("Pillarbox-Key", key),
        ],
        ..not_an_event(position)
    }
}

pub(super) fn not_an_event(position: u64) -> Message {
    Message {
        lane: 0,
        position,
        topic: "things".to_owned(),
        partition: None,
        key: None,
        headers: Vec::new(),
        body: Bytes::from_static(b"{}"),
        room: None,
    }
}

//! A connection whose client must read what is written to it.

use std::{
    io::{Error, ErrorKind, IoSlice, Result},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// By when the client must have read what is written to it, however slowly it reads. An answer can set it.
#[derive(Debug, Clone, Default)]
pub(in crate::http) struct ReadBy(Arc<Mutex<Option<Instant>>>);

impl ReadBy {
    pub(in crate::http) fn set(&self, time: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    fn time(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Timely<S> {
    stream: S,
    write_time_max: Duration,
    read_by: ReadBy,
    /// Runs while there is something to write and no room for it.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Timely<S> {
    pub(super) fn new(stream: S, write_time_max: Duration, read_by: ReadBy) -> Self {
        Self {
            stream,
            write_time_max,
            read_by,
            stalled: None,
        }
    }

    fn timely<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        let written = write(Pin::new(&mut self.stream), context);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let (time, read_by) = (Instant::now() + self.write_time_max, self.read_by.time());
        let until = read_by.map_or(time, |read_by| read_by.min(time));
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(until)));
        let over = || Error::new(ErrorKind::TimedOut, "the client does not read its answer");
        stalled.as_mut().poll(context).map(|()| Err(over()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timely<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.timely(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.timely(context, |stream, context| {
            stream.poll_write_vectored(context, parts)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.timely(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.timely(context, |stream, context| stream.poll_shutdown(context))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timely<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

//! A gate at which calls wait while it is closed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Clones are the same gate. When it opens, those who wait go on in the order in which they came. (The waiters of
/// tokio's `watch` go on in a random order, and a simulation must be the same every time.)
#[derive(Debug, Clone)]
pub struct Gate(Arc<State>);

#[derive(Debug)]
struct State {
    open: AtomicBool,
    opened: Notify,
}

impl Default for Gate {
    fn default() -> Self {
        Self::open()
    }
}

impl Gate {
    pub fn open() -> Self {
        Self(Arc::new(State {
            open: AtomicBool::new(true),
            opened: Notify::new(),
        }))
    }

    pub fn set(&self, open: bool) {
        self.0.open.store(open, Ordering::SeqCst);
        if open {
            self.0.opened.notify_waiters();
        }
    }

    /// Waits while it is closed.
    pub async fn pass(&self) {
        loop {
            let mut opened = std::pin::pin!(self.0.opened.notified());
            // From now on an opening is not missed.
            opened.as_mut().enable();
            if self.0.open.load(Ordering::SeqCst) {
                return;
            }
            opened.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_go_on_in_their_order() {
        let (gate, passed) = (Gate::open(), Arc::new(Mutex::new(Vec::new())));
        gate.pass().await;
        gate.set(false);
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..50 {
            let (gate, passed) = (gate.clone(), passed.clone());
            tasks.spawn(async move {
                gate.pass().await;
                passed.lock().unwrap().push(n);
            });
        }
        tokio::task::yield_now().await;
        assert!(passed.lock().unwrap().is_empty(), "it is closed");
        gate.set(true);
        tasks.join_all().await;
        assert_eq!(*passed.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}

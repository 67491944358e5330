//! One consumer: a process that is killed, paused, stopped and restarted.

use std::{sync::Arc, time::Duration};

use pillarbox_testkit::{consumer::Plan, servers, storm::Source};
use rand::RngExt;
use tokio::{process::Child, sync::Mutex};

use crate::consume::killed::program;

/// How long a proper stop may take.
const LEAVE_MAX: Duration = Duration::from_secs(60);

pub(super) struct Instance {
    plan: Plan,
    child: Child,
}

impl Instance {
    pub(super) fn start(plan: Plan) -> Self {
        Self {
            child: plan.start(program()),
            plan,
        }
    }

    /// Restarts it if it has ended: without a database or broker at its start, a consumer ends by itself.
    pub(super) fn revive(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            self.child = self.plan.start(program());
        }
    }

    /// Tells it to stop. `false`: it has not ended in time.
    pub(super) async fn leave(&mut self) -> bool {
        drop(self.child.stdin.take());
        tokio::time::timeout(LEAVE_MAX, self.child.wait()).await.is_ok()
    }

    fn signal(&self, name: &str) {
        if let Some(pid) = self.child.id() {
            // It may have ended by itself.
            let _ = servers::signal(name, &[pid]);
        }
    }
}

/// Repeatedly kills, pauses and stops one consumer. It is running when the storm is over.
pub(super) async fn come_and_go(instance: Arc<Mutex<Instance>>, mut source: Source) {
    while source.next(1_000..4_500).await {
        let mut instance = instance.lock().await;
        instance.revive();
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("consumer killed");
                instance.child.kill().await.unwrap();
                source.last(0..1_500).await;
            }
            1 => {
                let _lasting = source.begin("consumer paused");
                instance.signal("STOP");
                source.last(500..4_000).await;
                instance.signal("CONT");
            }
            _ => {
                let _lasting = source.begin("consumer left and joined");
                assert!(instance.leave().await, "a consumer did not stop when told to");
                source.last(0..1_500).await;
            }
        }
        instance.revive();
    }
}

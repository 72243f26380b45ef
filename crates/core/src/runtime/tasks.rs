//! Tasks that the process cannot live without.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Starts tasks, remembers them until the shutdown, and reports the first that ends on its own.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    fatal: mpsc::UnboundedSender<String>,
}

impl Tasks {
    pub(super) fn new(stop: CancellationToken) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (fatal, ended) = mpsc::unbounded_channel();
        (Self { tracker: TaskTracker::new(), stop, fatal }, ended)
    }

    /// Starts a task that lives until the shutdown. If it panics, or ends before, the process ends with that reason: a
    /// controller with a dead part would look alive and do nothing.
    pub fn spawn<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, fatal) = (self.stop.clone(), self.fatal.clone());
        let guarded = async move {
            let reason = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) if stop.is_cancelled() => return,
                Ok(()) => format!("task {name} ended"),
                Err(panic) => format!("task {name} panicked: {}", text(panic.as_ref())),
            };
            // The receiver is gone only when the process is already on its way out.
            let _ = fatal.send(reason);
        };
        self.tracker.spawn(guarded.instrument(tracing::info_span!("task", name)));
    }

    /// Cancelled when the process should stop.
    #[must_use]
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    pub(super) async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_with_its_reason() {
        let (tasks, mut ended) = Tasks::new(CancellationToken::new());
        tasks.spawn("planner", async { panic!("row {} has no name", 7) });
        assert_eq!(ended.recv().await.unwrap(), "task planner panicked: row 7 has no name");
    }

    #[tokio::test]
    async fn an_early_end_is_reported_and_one_after_the_stop_is_not() {
        let (tasks, mut ended) = Tasks::new(CancellationToken::new());
        tasks.spawn("early", async {});
        assert_eq!(ended.recv().await.unwrap(), "task early ended");

        let stop = tasks.stop().clone();
        tasks.spawn("late", async move { stop.cancelled().await });
        tasks.stop().cancel();
        tasks.finished().await;
        assert!(ended.try_recv().is_err());
    }
}

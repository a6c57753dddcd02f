//! Tasks in the background, of which at most one runs at a time.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::AbortHandle;

use super::runtime_with_timer;
use crate::sync::Mutex;

/// A background task of a limiter, of which at most one runs at a time. The limiter
/// [stops](Self::stop) it when it ends.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTask {
    running: RunningFlag,
    is_stopped: AtomicBool,
    handle: Mutex<Option<AbortHandle>>,
}

impl BackgroundTask {
    /// Starts the task, unless it is running, was stopped, or there is no tokio runtime with timers.
    pub(crate) fn start<F>(&self, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.running.is_set() {
            return;
        }
        let Some(runtime) = runtime_with_timer() else { return };
        let Some(running) = self.running.set() else { return };
        let task = task();
        let handle = runtime.spawn(async move {
            let _running = running;
            task.await;
        });
        *self.handle.lock() = Some(handle.abort_handle());
        if self.is_stopped.load(Ordering::SeqCst) {
            self.abort();
        }
    }

    /// Aborts the task, which cannot be started again.
    pub(crate) fn stop(&self) {
        // The flag is set first, so that a task that starts meanwhile is aborted here or in
        // `start`.
        self.is_stopped.store(true, Ordering::SeqCst);
        self.abort();
    }

    fn abort(&self) {
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            handle.abort();
        }
    }
}

/// A flag of work of which at most one runs at a time.
#[derive(Debug, Default)]
pub(crate) struct RunningFlag(Arc<AtomicBool>);

impl RunningFlag {
    /// Sets the flag until the guard is dropped. Returns `None` if it is set.
    pub(crate) fn set(&self) -> Option<RunningGuard> {
        let was_set = self.0.swap(true, Ordering::AcqRel);
        (!was_set).then(|| RunningGuard(Arc::clone(&self.0)))
    }

    /// Returns whether the work runs.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A guard that clears the flag when the work ends, also when the runtime drops its task.
pub(crate) struct RunningGuard(Arc<AtomicBool>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    #[tokio::test]
    async fn does_not_start_after_it_was_stopped() {
        let task = BackgroundTask::default();
        for is_stopped in [false, true] {
            let (sender, receiver) = oneshot::channel::<()>();
            task.start(|| async move {
                let _sender = sender;
                std::future::pending::<()>().await;
            });
            yield_now().await;
            assert_eq!(task.running.is_set(), !is_stopped);
            task.stop();
            assert!(receiver.await.is_err(), "the task has ended");
        }
    }
}

//! A task that runs at most once at a time.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime::Handle, task::AbortHandle};

/// A background task of a limiter. It has to be [stopped](Self::stop) when the limiter ends.
#[derive(Debug, Default)]
pub(super) struct BackgroundTask {
    is_running: Arc<AtomicBool>,
    is_stopped: AtomicBool,
    handle: Mutex<Option<AbortHandle>>,
}

impl BackgroundTask {
    /// Starts the task, unless it is running, was stopped, or there is no tokio runtime.
    pub(super) fn start<F>(&self, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.is_running.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = RunningGuard(Arc::clone(&self.is_running));
        let task = task();
        let handle = runtime.spawn(async move {
            let _running = running;
            task.await;
        });
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.abort_handle());
        if self.is_stopped.load(Ordering::SeqCst) {
            self.abort();
        }
    }

    /// Ends the task. It does not start again.
    pub(super) fn stop(&self) {
        // Set first: a task that starts meanwhile is aborted here or where it starts.
        self.is_stopped.store(true, Ordering::SeqCst);
        self.abort();
    }

    fn abort(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            handle.abort();
        }
    }
}

/// Clears the flag when the task ends, also when its runtime does.
struct RunningGuard(Arc<AtomicBool>);

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
            assert_eq!(task.is_running.load(Ordering::Relaxed), !is_stopped);
            task.stop();
            assert!(receiver.await.is_err(), "the task has ended");
        }
    }
}

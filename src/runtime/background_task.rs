//! Work in the background: tasks of which at most one runs at a time, and threads with a runtime of their own.

use std::{
    cell::Cell,
    future::Future,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use tokio::{runtime::Builder, task::AbortHandle, time::Instant};

use super::runtime_with_timer;
use crate::sync::Mutex;

/// A background task of a limiter, of which at most one runs at a time. The limiter
/// [stops](Self::stop) it when it ends. A task that has ended, also with its runtime, can be started again.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTask(Mutex<TaskState>);

#[derive(Debug, Default)]
enum TaskState {
    #[default]
    New,
    Started(AbortHandle),
    Stopped,
}

impl BackgroundTask {
    /// Starts the task, unless it is running, was stopped, or there is no tokio runtime with timers.
    pub(crate) fn start<F>(&self, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.0.lock();
        if matches!(*state, TaskState::Stopped) || state.is_running() {
            return;
        }
        let Some(runtime) = runtime_with_timer() else { return };
        *state = TaskState::Started(runtime.spawn(task()).abort_handle());
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.lock().is_running()
    }

    /// Aborts the task, which cannot be started again.
    pub(crate) fn stop(&self) {
        let state = mem::replace(&mut *self.0.lock(), TaskState::Stopped);
        if let TaskState::Started(task) = state {
            task.abort();
        }
    }
}

impl TaskState {
    fn is_running(&self) -> bool {
        matches!(self, Self::Started(task) if !task.is_finished())
    }
}

/// A flag of work of which at most one runs at a time.
#[derive(Debug, Default)]
pub(crate) struct RunningFlag(Arc<AtomicBool>);

impl RunningFlag {
    /// Sets the flag until the guard is dropped. Returns `None` if it is set, which is only a load of an atomic.
    pub(crate) fn set(&self) -> Option<RunningGuard> {
        let was_set = self.is_set() || self.0.swap(true, Ordering::AcqRel);
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

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the caller runs on a thread of [`run_on_own_thread`]. What it waits for must not depend on another
/// runtime.
#[cfg(feature = "redis")]
pub(crate) fn is_own_thread() -> bool {
    IS_OWN.get()
}

/// Runs `work` on a new thread, which ends with it.
///
/// It runs in the runtime of the caller instead, if there is one, in two cases: the system gives no thread or no file descriptor, or a
/// test moves the clock of that runtime. If there is none either, `work` is dropped.
pub(crate) fn run_on_own_thread(work: impl Future<Output = ()> + Send + 'static) {
    let caller = runtime_with_timer();
    if let Some(caller) = caller.as_ref().filter(|_| is_virtual_time()) {
        caller.spawn(work);
        return;
    }
    let (sender, receiver) = mpsc::channel();
    let of_caller = caller.clone();
    let thread = thread::Builder::new().name("plimsoll".to_owned()).spawn(move || {
        let Ok(work) = receiver.recv() else { return };
        if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
            IS_OWN.set(true);
            runtime.block_on(work);
            // A name server that does not answer must not keep the thread.
            runtime.shutdown_background();
        } else if let Some(caller) = of_caller {
            caller.spawn(work);
        }
    });
    // A thread that was started waits for the work.
    if thread.is_ok() {
        let _ = sender.send(work);
    } else if let Some(caller) = caller {
        caller.spawn(work);
    }
}

/// Returns whether a test moves the clock of the caller's runtime. Otherwise the runtime reads the clock of the
/// system.
#[expect(
    clippy::disallowed_methods,
    reason = "it compares the clock of tokio with the clock below it"
)]
fn is_virtual_time() -> bool {
    let before = std::time::Instant::now();
    let time = Instant::now().into_std();
    let after = std::time::Instant::now();
    !(before..=after).contains(&time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            assert_eq!(task.is_running(), !is_stopped);
            task.stop();
            assert!(receiver.await.is_err(), "the task has ended");
        }
    }

    /// Returns the name of the thread on which the work runs.
    fn host() -> mpsc::Receiver<Option<String>> {
        let (sender, host) = mpsc::channel();
        run_on_own_thread(async move {
            let _ = sender.send(thread::current().name().map(str::to_owned));
        });
        host
    }

    #[test]
    fn work_goes_on_without_a_runtime_and_in_one_that_is_not_polled() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        for host in [host(), runtime.block_on(async { host() })] {
            let name = host.recv_timeout(Duration::from_secs(30)).expect("it runs");
            assert_eq!(name.as_deref(), Some("plimsoll"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_test_that_moves_the_clock_moves_the_work() {
        for moved in [0, 1, 10_000] {
            tokio::time::advance(Duration::from_millis(moved)).await;
            let host = host();
            tokio::task::yield_now().await;
            let name = host.try_recv().expect("it has run in this runtime");
            assert_ne!(name.as_deref(), Some("plimsoll"));
        }
    }
}

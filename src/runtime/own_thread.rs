//! A thread with a runtime of its own, for work that goes on while the program polls no runtime.

use std::{cell::Cell, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    time::Instant,
};

use super::runtime_with_timer;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the caller runs on such a thread. What it waits for must not depend on another runtime.
#[cfg(feature = "redis")]
pub(crate) fn is_own_thread() -> bool {
    IS_OWN.get()
}

/// Runs the future that `work` creates on a new thread. The thread ends with it.
///
/// The future runs in the runtime of the caller instead, if there is one, in two cases: the system starts no
/// thread, or a test moves the clock of that runtime. If there is none either, `work` is dropped.
pub(crate) fn run_on_own_thread<F>(work: impl Fn() -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let caller = runtime_with_timer();
    if let Some(caller) = caller.as_ref().filter(|_| is_virtual_time()) {
        caller.spawn(work());
        return;
    }
    let work = Arc::new(work);
    let on_thread = {
        let (work, caller) = (Arc::clone(&work), caller.clone());
        move || {
            IS_OWN.set(true);
            match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    runtime.block_on(work());
                    // A name server that does not answer must not keep the thread.
                    runtime.shutdown_background();
                }
                Err(_) => run_in(caller, work()),
            }
        }
    };
    if thread::Builder::new().name("plimsoll".to_owned()).spawn(on_thread).is_err() {
        run_in(caller, work());
    }
}

fn run_in(runtime: Option<Handle>, work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = runtime {
        runtime.spawn(work);
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
    use std::{sync::mpsc, time::Duration};

    use super::*;

    /// Returns the name of the thread on which the work runs.
    fn host() -> mpsc::Receiver<Option<String>> {
        let (sender, host) = mpsc::channel();
        run_on_own_thread(move || {
            let sender = sender.clone();
            async move { drop(sender.send(thread::current().name().map(str::to_owned))) }
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

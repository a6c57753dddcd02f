//! The task that watches files.
//!
//! It reads them four times a second. A notification of the operating system would be no faster than
//! needed, and does not come for every file: not for a symbolic link that is swapped further up in the
//! path, as in a ConfigMap, nor in network file systems. A read of a few kilobytes takes some 10 us.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

/// The time between two reads.
const INTERVAL: Duration = Duration::from_millis(250);

/// A task that looks at files four times a second. It ends when this is dropped.
#[derive(Debug, Default)]
#[must_use = "dropping it ends the watch"]
pub struct Watch(Mutex<Option<JoinHandle<()>>>);

impl Watch {
    /// Starts the task, which calls `poll` until it returns false. While it runs, this has no effect.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start(&self, poll: impl Fn() -> bool + Send + Sync + 'static) {
        let mut task = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The task of a runtime that was shut down has finished.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(watch(Arc::new(poll))));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let task = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

async fn watch(poll: Arc<impl Fn() -> bool + Send + Sync + 'static>) {
    loop {
        sleep(INTERVAL).await;
        let poll = Arc::clone(&poll);
        match spawn_blocking(move || poll()).await {
            Ok(true) => {}
            // A mistake in a closure of the program does not end the task.
            Err(error) if error.is_panic() => {}
            Ok(false) | Err(_) => return,
        }
    }
}

//! The task that watches the files.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

use super::shared::Shared;

/// The time between two reads. A change is taken at the second read that shows it.
const INTERVAL: Duration = Duration::from_millis(250);

/// The task that watches the files of a configuration. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct EnvoyWatch(JoinHandle<()>);

impl EnvoyWatch {
    /// Starts the task.
    pub(super) fn start(shared: Arc<Shared>) -> Self {
        Self(tokio::spawn(async move {
            loop {
                sleep(INTERVAL).await;
                let shared = Arc::clone(&shared);
                // A runtime that shuts down cancels the read, and then this task.
                let _ = spawn_blocking(move || shared.poll()).await;
            }
        }))
    }
}

impl Drop for EnvoyWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

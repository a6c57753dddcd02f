//! The task that watches the file.
//!
//! It reads the file four times a second, and compares the text with the one before. A notification of the
//! operating system would be no faster than needed, and does not come for every file: not for a symbolic
//! link that is swapped further up in the path, as in a ConfigMap, nor for network file systems. A few
//! kilobytes from the page cache cost some 10 us.

use std::{
    sync::{Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

use super::config::{Shared, read};

/// The time between two reads. A text that is the same in two of them is put in force.
const INTERVAL: Duration = Duration::from_millis(250);

/// The task, once it was started. It ends when the slot is dropped.
#[derive(Default)]
pub(super) struct Slot(Mutex<Option<JoinHandle<()>>>);

impl Slot {
    pub(super) fn start(&self, shared: Weak<Shared>) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The task of a runtime that was shut down has finished.
        if slot.as_ref().is_none_or(JoinHandle::is_finished) {
            *slot = Some(tokio::spawn(watch(shared)));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let slot = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = slot.take() {
            task.abort();
        }
    }
}

async fn watch(shared: Weak<Shared>) {
    let mut before = None;
    loop {
        sleep(INTERVAL).await;
        let Some(path) = shared.upgrade().and_then(|it| it.path().map(ToOwned::to_owned)) else {
            return;
        };
        let Ok(now) = spawn_blocking(move || read(&path)).await else { return };
        let text = now.as_ref().ok().cloned();
        // An editor may have written a part of the file.
        if before.as_ref() == Some(&text) {
            let Some(shared) = shared.upgrade() else { return };
            // The status has the error.
            let _ = shared.take(now);
        }
        before = Some(text);
    }
}

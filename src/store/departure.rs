//! Whether a request may have left this process when its caller gives up.
//!
//! A store that says so says it in the task of its caller. What is sent by another task, for several
//! callers or on behalf of one that must not end it, may have left at any time: nothing is said then.

use std::{cell::Cell, pin::pin, time::Duration};

use tokio::time::timeout;

tokio::task_local! {
    /// Whether nothing has left so far.
    static WAITS: Cell<bool>;
}

/// The request waits for a connection: it has not left, or what did was turned away.
#[cfg(feature = "redis")]
pub(super) fn waits() {
    let _ = WAITS.try_with(|waits| waits.set(true));
}

/// The request leaves.
#[cfg(feature = "redis")]
pub(super) fn leaves() {
    let _ = WAITS.try_with(|waits| waits.set(false));
}

/// An answer did not come in time.
pub(super) struct Late {
    /// Whether the request certainly has not left, and never will.
    pub(super) unsent: bool,
}

/// A timer goes off up to so much late.
const TICK: Duration = Duration::from_millis(1);

/// The answer, if it comes in time.
pub(super) async fn within<F: Future>(limit: Duration, answer: F) -> Result<F::Output, Late> {
    let mut answer = pin!(WAITS.scope(Cell::new(false), answer));
    let in_time = timeout(limit.max(TICK * 2) - TICK, answer.as_mut()).await;
    // It is dropped here, so what waits now will not leave.
    in_time.map_err(|_| Late { unsent: answer.take_value().is_some_and(Cell::into_inner) })
}

//! An axum server in a process of its own, under steady load from another, while its Redis goes
//! through real faults; and attackers.

mod attackers;
mod clusters;
mod distance;
mod figures;
mod load;
mod loss;
mod names;
mod outages;
mod pacing;
mod saturated;
mod sentinels;
mod server;
mod stage;
mod streams;
mod transport;
mod transports;

use std::{env, sync::LazyLock};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The number of faults that are measured at the same time. Each loads a third of a core, and waits for most of
/// its 4 s.
static STAGES: LazyLock<u32> = LazyLock::new(|| {
    let stages = env::var("PLIMSOLL_STAGES").unwrap_or_else(|_| "2".to_owned());
    stages.parse().expect("PLIMSOLL_STAGES is a number")
});
static MACHINE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*STAGES as usize));

/// Waits for the part of the machine that a test with a steady load needs.
pub(crate) async fn part_of_machine() -> SemaphorePermit<'static> {
    MACHINE.acquire().await.expect("never closed")
}

/// Waits until no other test measures times, for a test that needs all of the machine.
pub(crate) async fn whole_machine() -> SemaphorePermit<'static> {
    MACHINE.acquire_many(*STAGES).await.expect("never closed")
}

//! The contract of every store, for the embedded store.

use plimsoll_testing::{contract::leases::counts, memory, store_contract};

store_contract!(in_memory, plimsoll_testing::memory);
store_contract!(wrapped, plimsoll_testing::wrapped_memory);

/// Each unit is used when it is granted, so it counts over the window alone.
#[tokio::test]
async fn a_lease_changes_nothing() {
    let fixture = memory().await;
    const SECOND: u64 = 1_000_000;
    let log = [(0, 2), (10 * SECOND - 1, 2), (10 * SECOND, 10)];
    counts(&fixture, "sliding-log", 10, &log).await;
    let buckets = [(0, 2), (12 * SECOND - 1, 2), (12 * SECOND, 10)];
    counts(&fixture, "sliding-buckets(5)", 10, &buckets).await;
    let counter = [(0, 2), (10 * SECOND, 2), (15 * SECOND, 6), (20 * SECOND, 10)];
    counts(&fixture, "sliding-counter", 10, &counter).await;
    let bucket = [(0, 2), (SECOND - 1, 2), (SECOND, 3), (8 * SECOND, 10)];
    counts(&fixture, "token-bucket(10)", 10, &bucket).await;
    let fixed = [(0, 2), (10 * SECOND - 1, 2), (10 * SECOND, 10)];
    counts(&fixture, "fixed-window", 10, &fixed).await;
}

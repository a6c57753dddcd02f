//! The promises of an embedded store beside the contract of all stores.

use crate::{leases::counts, support::Fixture};

/// Each unit is used when it is granted, so it counts over the window alone.
pub(crate) async fn a_lease_changes_nothing(fixture: Fixture) {
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

//! Sliding log: remembers every charge with its time.
//!
//! Admits at most `limit` units in any window, and keeps at most 20,001 records.
//!
//! Up to a limit of 10,000, times are exact. Above it they are rounded up to the next of 10,000 edges a
//! window, as by [`SlidingBuckets(10_000)`](super::sliding_buckets), so a unit comes back up to
//! `window / 10_000` late. A window of up to 10 ms holds no more than 10,000 microseconds, so its times
//! are always exact.
//!
//! A record stays when its units are refunded, and forced charges exceed the limit. So a log of any limit
//! can come to hold 10,000 records; while it does, times are rounded as above a limit of 10,000. Such a log
//! has at most 10,000 records of exact times and 10,001 of rounded ones. Without refunds and forced charges
//! it has at most 10,001.
//!
//! Under a [concurrency limit](crate::Quota::concurrent) the window is the expiry, and a unit is refunded
//! when its work has ended. The oldest records leave as soon as all their units are refunded, so such a log
//! has the records since the oldest unit in flight.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that still count. If it needs another resolution, records
//!   keep their stamps, and charges before the stamp of the newest record count in it.
//! - After a change of the *window* each charge counts for its own window, or for the window of a later
//!   charge if that is shorter. See [`ring`](super::ring).
//! - The bound holds from the change on for the units charged after it, because each of them counts
//!   for the whole new window. Once one new window has passed, it holds for all units.

/// A log whose times are exact up to a limit of 10,000.
pub(crate) type SlidingLog = super::ring::Ring;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        algorithm::{Refund, Snapshot, StateMachine, UnlimitedMemory},
        clock::Timestamp,
        quota::Quota,
    };

    /// A burst of as many records as have exact times, then a charge for each edge of a window.
    #[test]
    fn refunded_and_forced_charges_leave_at_most_20_001_records() {
        let quota = Quota::new(10, Duration::from_secs(1)).expect("in bounds");
        for is_refunded in [true, false] {
            let mut log = SlidingLog::default();
            let mut most = 0;
            let times = (1..=15_000).chain((1_001..=30_000).map(|edge| edge * 100));
            for time in times.map(Timestamp::from_micros) {
                let mut snapshot = log.snapshot(&quota, time);
                let mark = log.charge(&mut snapshot, 1, &UnlimitedMemory);
                most = most.max(snapshot.records());
                let refund = Refund { quota, units: 1, mark };
                if is_refunded {
                    assert_eq!(log.refund(&quota, time, &refund), 1);
                    assert_eq!(log.refund(&quota, time, &refund), 0);
                    assert_eq!(log.snapshot(&quota, time).free(), 10);
                }
            }
            assert!((19_000..=20_001).contains(&most), "{most}");
            assert!(log.heap_bytes() < 20_001 * 10 * 9 / 8 + 100, "{}", log.heap_bytes());
        }
    }
}

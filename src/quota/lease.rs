//! The arithmetic of leased quotas: which leases a quota allows, and how a shared store counts it.

use std::time::Duration;

use super::{Quota, UnitsReturn};
use crate::error::Error;

/// Checks that `quota` can be leased for `lease`.
pub(super) fn validate(lease: Duration, quota: &Quota) -> Result<(), Error> {
    if quota.window() < Quota::MIN_LEASED_WINDOW {
        let allowed = "500 ms to 400 days for a leased quota";
        return Err(Error::invalid("window", quota.window(), allowed));
    }
    let (longest, reason) = longest(quota);
    if longest < Duration::from_millis(1) {
        return Err(Error::invalid("lease", lease, format_args!("none for {quota} ({reason})")));
    }
    if lease.is_zero() || lease > longest {
        return Err(Error::invalid(
            "lease",
            lease,
            format_args!("1 ms to {longest:?} for {quota} ({reason})"),
        ));
    }
    if !lease.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Error::invalid("lease", lease, "a whole number of milliseconds"));
    }
    Ok(())
}

/// Returns the longest lease of `quota` in whole milliseconds, and the rule that ends it there.
fn longest(quota: &Quota) -> (Duration, &'static str) {
    let burst = match quota.algorithm().units_return() {
        UnitsReturn::AtRate { burst } => {
            // One unit of the burst has to remain: burst - ceil(limit * lease / window) >= 1.
            let micros =
                u128::from(burst - 1) * quota.window().as_micros() / u128::from(quota.limit());
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        }
        UnitsReturn::AfterWindow | UnitsReturn::ByPeriod => Duration::MAX,
    };
    let rules = [
        (quota.window() / 10, "a tenth of the window"),
        (Quota::MAX_LEASE, "1 hour"),
        (Quota::MAX_WINDOW - quota.window(), "window and lease are at most 400 days"),
        (burst, "the burst must exceed what refills during a lease"),
    ];
    let (longest, reason) = rules.into_iter().min().unwrap_or_default();
    (Duration::from_millis(longest.as_millis() as u64), reason)
}

/// Returns the quota by which a shared store counts `quota`, which has been leased for `micros`.
pub(super) fn counted(quota: Quota, micros: u64) -> Quota {
    let (limit, window, algorithm) = (quota.limit(), quota.window_micros(), quota.algorithm());
    match algorithm.units_return() {
        UnitsReturn::AtRate { .. } => {
            let refill =
                (u128::from(limit) * u128::from(micros)).div_ceil(u128::from(window)) as u64;
            // The burst of a share of a quota may be as small as the refill.
            let rest = |burst: u64| burst.saturating_sub(refill).max(1);
            Quota::packed(limit, window, algorithm.map_burst(rest))
        }
        UnitsReturn::AfterWindow => Quota::packed(limit, window + micros, algorithm),
        UnitsReturn::ByPeriod => quota,
    }
}

#[cfg(test)]
mod tests {
    use crate::{clock::Timestamp, quota::Quota};

    fn quota(text: &str) -> Quota {
        text.parse().unwrap()
    }

    #[test]
    fn a_lease_ends_with_the_period_that_counts_its_units() {
        let lease_at =
            |text: &str, micros| quota(text).lease_micros_at(Timestamp::from_micros(micros));
        for algorithm in ["sliding-counter", "fixed-window"] {
            let text = format!("9/10s {algorithm} leased(1s)");
            for (granted, lease) in
                [(0, 1_000_000), (9_000_000, 1_000_000), (9_000_001, 999_999), (19_999_999, 1)]
            {
                assert_eq!(lease_at(&text, granted), lease, "{text} at {granted}");
            }
        }
        for algorithm in ["sliding-log", "sliding-buckets(5)", "token-bucket(9)"] {
            let text = format!("9/10s {algorithm} leased(1s)");
            for granted in [0, 9_000_001, 9_999_999] {
                assert_eq!(lease_at(&text, granted), 1_000_000, "{text}");
            }
        }
        assert_eq!(lease_at("9/10s", 0), 0);
    }

    #[test]
    fn the_shares_of_a_leased_quota_are_leased() {
        for (whole, share) in [
            ("100/s leased(100ms)", "25/s leased(100ms)"),
            ("100/s token-bucket(80) leased(100ms)", "25/s token-bucket(20) leased(100ms)"),
        ] {
            assert_eq!(quota(whole).share(4), quota(share));
            assert_eq!(Quota::from_words(quota(whole).to_words()), quota(whole));
        }
        // As small as this no quota can be leased, but each share keeps at least 1 unit.
        let smallest = quota("100/s token-bucket(80) leased(100ms)").share(80);
        assert_eq!(smallest.counted(), quota("1/s token-bucket(1)"));
    }
}

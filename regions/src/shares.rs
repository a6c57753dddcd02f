//! The arithmetic of shares: a [quota](Quota), divided into one guaranteed share for each region and a pool.
//!
//! `regions * share + pool` is the limit, and likewise the burst. No unit is in two parts. If the
//! pool of a token bucket would have no burst or no rate, there is no pool, and fewer units than
//! there are regions are not used.

use plimsoll::{Algorithm, Quota};

/// The rule by which [quotas](Quota) are divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    regions: u64,
    /// The percentage that is guaranteed to all regions together, at most 100.
    percent: u64,
}

/// The parts of a quota that one region charges, at least one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// The guaranteed share of the region. `None` if the quota is too small to share.
    pub(super) share: Option<Quota>,
    /// The part of the home store. `None` if the shares are the whole quota.
    pub(super) pool: Option<Quota>,
}

impl Shares {
    pub(super) fn new(regions: u32, percent: u32) -> Self {
        Self { regions: u64::from(regions), percent: u64::from(percent.min(100)) }
    }

    /// Divides a quota. If a part would not be a valid quota, such as one of 0 units, or of a lease
    /// during which its whole burst returns, the whole quota belongs to the pool.
    pub(super) fn divide(&self, quota: &Quota) -> Parts {
        self.share_of(quota).unwrap_or(Parts { share: None, pool: Some(*quota) })
    }

    fn share_of(&self, quota: &Quota) -> Option<Parts> {
        let (share, pool) = self.divide_units(quota.limit());
        let algorithm = quota.algorithm();
        let Algorithm::TokenBucket { burst } = algorithm else {
            let share = part(quota, share, algorithm)?;
            let pool = if pool == 0 { None } else { Some(part(quota, pool, algorithm)?) };
            return Some(Parts { share: Some(share), pool });
        };
        let (share_burst, pool_burst) = self.divide_units(burst);
        let share = part(quota, share, Algorithm::TokenBucket { burst: share_burst })?;
        // The pool needs a rest of the limit and of the burst. If one of them is 0, there is no
        // pool, and the rest of the other one is not used.
        let pool = if pool == 0 || pool_burst == 0 {
            None
        } else {
            Some(part(quota, pool, Algorithm::TokenBucket { burst: pool_burst })?)
        };
        Some(Parts { share: Some(share), pool })
    }

    /// Returns the share of one region, and the pool.
    fn divide_units(&self, units: u64) -> (u64, u64) {
        // At most 10^12 units times 100, which fits.
        let share = units * self.percent / 100 / self.regions;
        (share, units - share * self.regions)
    }
}

/// Returns a quota of `units` with the window and the lease of `whole`.
fn part(whole: &Quota, units: u64, algorithm: Algorithm) -> Option<Quota> {
    let part = Quota::new(units, whole.window(), algorithm).ok()?;
    match whole.lease() {
        None => Some(part),
        Some(lease) => part.leased(lease).ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_testing::{algorithms::with_parameters, seed};
    use proptest::prelude::*;

    use super::*;

    fn divide(regions: u32, percent: u32, quota: &str) -> (Option<String>, Option<String>) {
        let parts = Shares::new(regions, percent).divide(&quota.parse().expect("a valid quota"));
        let text = |quota: Option<Quota>| quota.map(|quota| quota.to_string());
        (text(parts.share), text(parts.pool))
    }

    #[test]
    fn a_quota_is_divided_into_shares_and_a_pool() {
        for (regions, percent, quota, share, pool) in [
            (2, 70, "100/min", "35/min", "30/min"),
            (3, 70, "100/min", "23/min", "31/min"),
            (1, 70, "10/s", "7/s", "3/s"),
            (
                2,
                70,
                "60000/min leased(500ms)",
                "21000/min leased(500ms)",
                "18000/min leased(500ms)",
            ),
            (2, 50, "100/s token-bucket(20)", "25/s token-bucket(5)", "50/s token-bucket(10)"),
            (
                4,
                80,
                "100/s sliding-buckets(6)",
                "20/s sliding-buckets(6)",
                "20/s sliding-buckets(6)",
            ),
            (2, 60, "10/h fixed-window", "3/h fixed-window", "4/h fixed-window"),
        ] {
            let expected = (Some(share.to_owned()), Some(pool.to_owned()));
            assert_eq!(divide(regions, percent, quota), expected, "{quota}");
        }
    }

    #[test]
    fn a_quota_too_small_to_share_belongs_to_the_pool() {
        for (regions, percent, quota) in [
            (2, 70, "2/min"),
            (100, 70, "142/min"),
            (3, 0, "1000/min"),
            // The burst cannot be shared.
            (2, 70, "100/s token-bucket(2)"),
            // The burst of a share returns within a lease.
            (2, 70, "100/s token-bucket(8) leased(50ms)"),
        ] {
            assert_eq!(divide(regions, percent, quota), (None, Some(quota.to_owned())), "{quota}");
        }
    }

    #[test]
    fn shares_of_the_whole_quota_leave_no_pool() {
        assert_eq!(divide(2, 100, "100/min"), (Some("50/min".to_owned()), None));
        let bucket = divide(2, 100, "101/min token-bucket(10)");
        assert_eq!(bucket, (Some("50/min token-bucket(5)".to_owned()), None));
    }

    fn quotas() -> impl Strategy<Value = Quota> {
        let burst = prop_oneof![1..=100_u64, 1..=1_000_000_000_000_u64];
        let algorithm = (prop::sample::select(Algorithm::EACH), 1..=1000_u16, burst)
            .prop_map(|(algorithm, n, burst)| with_parameters(algorithm, n, burst));
        let limit = prop_oneof![1..=200_u64, 1..=1_000_000_000_000_u64];
        let window = (1..=400 * 86_400_000_u64).prop_map(Duration::from_millis);
        let lease = prop::option::of((1..=2_000_u64).prop_map(Duration::from_millis));
        (limit, window, algorithm, lease).prop_filter_map(
            "not valid",
            |(limit, window, algorithm, lease)| {
                let quota = Quota::new(limit, window, algorithm).ok()?;
                Some(lease.and_then(|lease| quota.leased(lease).ok()).unwrap_or(quota))
            },
        )
    }

    /// Returns the units of all parts together: of a share for each region, and of the pool.
    fn sum(parts: &Parts, regions: u32, units: impl Fn(&Quota) -> u64) -> u64 {
        let of = |part: &Option<Quota>| part.as_ref().map_or(0, &units);
        of(&parts.share) * u64::from(regions) + of(&parts.pool)
    }

    #[test]
    fn the_parts_are_the_whole() {
        let strategy = (quotas(), prop_oneof![1..=5_u32, 1..=1_000_u32], 0..=100_u32);
        seed::property(
            "shares",
            ProptestConfig::default(),
            strategy,
            |(quota, regions, percent)| {
                let parts = Shares::new(regions, percent).divide(&quota);
                let (limit, burst) =
                    (sum(&parts, regions, Quota::limit), sum(&parts, regions, Quota::capacity));
                // A rest of a bucket that has no burst, or no rate, is less than a unit for each region.
                let unspent = if parts.pool.is_none() { u64::from(regions) - 1 } else { 0 };
                prop_assert!(
                    limit <= quota.limit() && quota.limit() - limit <= unspent,
                    "{parts:?}"
                );
                prop_assert!(
                    burst <= quota.capacity() && quota.capacity() - burst <= unspent,
                    "{parts:?}"
                );
                if percent < 100 {
                    prop_assert!(parts.pool.is_some(), "{parts:?}");
                }
                for part in [parts.share, parts.pool].into_iter().flatten() {
                    prop_assert_eq!((part.window(), part.lease()), (quota.window(), quota.lease()));
                    prop_assert_eq!(part.algorithm().name(), quota.algorithm().name());
                }
                let guaranteed = parts.share.map_or(0, |share| share.limit() * u64::from(regions));
                prop_assert!(guaranteed * 100 <= quota.limit() * u64::from(percent), "{parts:?}");
                Ok(())
            },
        );
    }

    #[test]
    fn each_number_of_units_is_the_sum_of_its_parts() {
        let strategy = (0..=Quota::MAX_LIMIT, 1..=u32::MAX, 0..=100_u32);
        seed::property(
            "units",
            ProptestConfig::default(),
            strategy,
            |(units, regions, percent)| {
                let (share, pool) = Shares::new(regions, percent).divide_units(units);
                prop_assert_eq!(share * u64::from(regions) + pool, units);
                Ok(())
            },
        );
    }

    /// While some processes divide another quota, each part holds at most the larger one of its two
    /// limits. [`Regions`](crate::Regions) states the bound.
    #[test]
    fn a_change_of_the_limit_adds_less_than_a_unit_for_each_region() {
        let strategy = (1..=10_000_u64, 1..=10_000_u64, 1..=20_u32, 0..=100_u32);
        seed::property(
            "changes",
            ProptestConfig::default(),
            strategy,
            |(a, b, regions, percent)| {
                let shares = Shares::new(regions, percent);
                let ((share_a, pool_a), (share_b, pool_b)) =
                    (shares.divide_units(a), shares.divide_units(b));
                let sum = share_a.max(share_b) * u64::from(regions) + pool_a.max(pool_b);
                prop_assert!(sum < a.max(b) + u64::from(regions), "{sum}");
                Ok(())
            },
        );
    }
}

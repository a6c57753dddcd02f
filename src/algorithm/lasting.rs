//! How long what was spent at one time counts.

use super::{
    fixed_window::next_edge,
    math::{mul_div, mul_div_ceil},
    sliding_buckets::bucket_end,
};
use crate::{
    clock::Timestamp,
    quota::{Algorithm, Quota},
};

/// Of so many units that a key spent at one time, and of nothing else, how many count at another,
/// when the key gets one of so many parts of what comes back.
pub(crate) fn still_count(
    quota: &Quota,
    parts: u32,
    units: u64,
    since: Timestamp,
    now: Timestamp,
) -> u64 {
    let (window, since, now) = (quota.window_micros(), since.as_micros(), now.as_micros());
    let until = |end: u64| if now < end { units } else { 0 };
    match quota.algorithm() {
        Algorithm::SlidingLog => until(since + window),
        Algorithm::SlidingBuckets(n) => until(bucket_end(window, n.into(), since) + window),
        Algorithm::SlidingCounter => {
            let edge = next_edge(since, window);
            let left = (edge + window).saturating_sub(now);
            mul_div_ceil(units, left.min(window), window)
        }
        Algorithm::TokenBucket { burst } => {
            let paid = mul_div(now.saturating_sub(since), quota.part(parts).limit(), window);
            units.min(burst + quota.limit()).saturating_sub(paid)
        }
        Algorithm::FixedWindow => until(next_edge(since, window)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        algorithm::{KeyState, Room},
        seed,
    };

    #[derive(Debug)]
    struct Endless;

    impl Room for Endless {
        fn allows(&self, _: usize) -> bool {
            true
        }

        fn resized(&self, _: usize, _: usize) {}
    }

    #[test]
    fn it_is_what_a_fresh_state_says() {
        let algorithms = prop_oneof![
            Just(Algorithm::SlidingLog),
            (1..7_u16).prop_map(Algorithm::SlidingBuckets),
            Just(Algorithm::SlidingCounter),
            (1..40_u64).prop_map(|burst| Algorithm::TokenBucket { burst }),
            Just(Algorithm::FixedWindow),
        ];
        let cases = (algorithms, 1..30_u64, 1..50_u64, 0..5_000_u64, 0..50_000_u64);
        let name = "still_count_is_what_a_fresh_state_says";
        seed::property(name, ProptestConfig::default(), cases, |case| {
            let (algorithm, limit, units, since, by) = case;
            let window = std::time::Duration::from_millis(1);
            let quota = Quota::new_with_algorithm(limit, window, algorithm).unwrap();
            let since = Timestamp::from_micros(1_000_000 + since);
            let now = Timestamp::from_micros(since.as_micros() + by);
            let mut state = KeyState::new(algorithm);
            let _ = state.spend(&quota, since, units, |_| units, &Endless);
            let counts = still_count(&quota, 1, units, since, now);
            let free = quota.capacity().saturating_sub(counts);
            prop_assert_eq!(state.free(&quota, now), free);
            Ok(())
        });
    }
}

//! The bytes of a state, for stores that keep states outside of this process.
//!
//! The first byte is the version of the layout, the second one the algorithm. The numbers of the state
//! follow, in little-endian order, and then a checksum of all that. So bytes that something else has
//! written, or that were cut off, are not taken for a state.

use siphasher::sip::SipHasher13;

use super::KeyState;
use crate::quota::{Algorithm, Quota};

/// The version of the layout of all algorithms.
const VERSION: u8 = 1;
/// The bit of the second byte that marks a blocked key.
pub(super) const BLOCKED: u8 = 0x80;
/// The length of the checksum.
const SUM_BYTES: usize = 8;

/// The latest time, and the largest count.
pub(super) const MAX_NUMBER: u64 = (1 << 53) - 1;
/// The longest window, in microseconds.
pub(super) const MAX_WINDOW: u64 = Quota::MAX_WINDOW.as_micros() as u64;

impl KeyState {
    /// Returns the state as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.number()];
        self.write(&mut bytes);
        bytes.extend(checksum(&bytes));
        bytes
    }

    /// Restores a state of this algorithm. Returns `None` for other bytes than
    /// [`to_bytes`](Self::to_bytes) has returned.
    pub(crate) fn from_bytes(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        let (written, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
        let [VERSION, number, ref numbers @ ..] = *written else { return None };
        let mut numbers = Numbers(numbers);
        let is_known = *sum == checksum(written) && number & !BLOCKED == algorithm.number();
        let state = is_known.then(|| Self::read(number, &mut numbers))??;
        numbers.0.is_empty().then_some(state)
    }
}

fn checksum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    SipHasher13::new().hash(bytes).to_le_bytes()
}

/// Appends numbers to the bytes of a state.
pub(super) fn write_numbers(bytes: &mut Vec<u8>, numbers: impl IntoIterator<Item = u64>) {
    bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
}

/// The numbers of a state that are not read yet.
pub(crate) struct Numbers<'b>(&'b [u8]);

impl<'b> Numbers<'b> {
    /// Reads the next number, which is at most `max`.
    pub(super) fn next(&mut self, max: u64) -> Option<u64> {
        let [bytes] = self.chunks(1)? else { return None };
        let number = u64::from_le_bytes(*bytes);
        (number <= max).then_some(number)
    }

    /// Reads the next `len` chunks of bytes.
    pub(super) fn chunks<const N: usize>(&mut self, len: usize) -> Option<&'b [[u8; N]]> {
        let (bytes, rest) = self.0.split_at_checked(len * N)?;
        self.0 = rest;
        Some(bytes.as_chunks().0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        algorithm::{Asked, At, Block, UnlimitedMemory},
        algorithms::with_parameters,
        clock::Timestamp,
        quota::Quota,
        seed,
    };

    fn quota(limit: u64, window: u64, algorithm: Algorithm) -> Quota {
        let window = Duration::from_micros(window);
        Quota::new(limit, window, algorithm).expect("in bounds")
    }

    /// Returns a state after charges of (units, microseconds since the last charge, window).
    fn state(algorithm: Algorithm, charges: &[(u64, u64, u64)]) -> (KeyState, Timestamp) {
        let mut state = KeyState::new(algorithm);
        let mut now = Timestamp::from_micros(1_700_000_000_000_000);
        for &(units, by, window) in charges {
            now = Timestamp::from_micros(now.as_micros() + by);
            let quota = quota(30, window, algorithm);
            let _ = state.spend(&quota, Asked::forced(units), At { now, budget: &UnlimitedMemory });
        }
        (state, now)
    }

    fn cases() -> impl Strategy<Value = (Algorithm, Vec<(u64, u64, u64)>, bool)> {
        let algorithm = (prop::sample::select(Algorithm::EACH), 1..7_u16, 1..40_u64)
            .prop_map(|(algorithm, n, burst)| with_parameters(algorithm, n, burst));
        let window = prop::sample::select(&[1_000_u64, 1_700, 5_000][..]);
        (algorithm, prop::collection::vec((0..9_u64, 0..900_u64, window), 0..30), any::<bool>())
    }

    #[test]
    fn a_restored_state_is_the_state_that_was_written() {
        seed::property("restored", ProptestConfig::default(), cases(), |case| {
            let (algorithm, charges, is_blocked) = case;
            let (mut state, now) = state(algorithm, &charges);
            if is_blocked {
                state.block(
                    Block::new(now, Duration::from_millis(1)),
                    At { now, budget: &UnlimitedMemory },
                );
            }
            let bytes = state.to_bytes();
            let mut restored = KeyState::from_bytes(algorithm, &bytes).expect("its bytes");
            prop_assert_eq!(restored.to_bytes(), bytes);
            prop_assert_eq!(restored.expires_at(), state.expires_at());
            for by in [0, 1, 500, 1_000, 2_500, 9_000] {
                let now = Timestamp::from_micros(now.as_micros() + by);
                for quota in [quota(30, 1_000, algorithm), quota(50, 5_000, algorithm)] {
                    let standings =
                        [&mut state, &mut restored].map(|it| it.standing(&quota, now, 3));
                    prop_assert_eq!(standings[0], standings[1]);
                    let spend = |state: &mut KeyState| {
                        state.spend(&quota, Asked::up_to(2), At { now, budget: &UnlimitedMemory })
                    };
                    prop_assert_eq!(spend(&mut state), spend(&mut restored));
                }
            }
            Ok(())
        });
    }

    /// With a checksum that fits, so that the numbers themselves are tested.
    #[test]
    fn other_bytes_are_no_state_and_damaged_numbers_do_not_panic() {
        let damage = (any::<prop::sample::Index>(), any::<u8>());
        let cases = (cases(), prop::collection::vec(damage, 1..8), any::<prop::sample::Index>());
        seed::property("damaged", ProptestConfig::default(), cases, |case| {
            let ((algorithm, charges, _), damage, end) = case;
            let (state, now) = state(algorithm, &charges);
            let bytes = state.to_bytes();
            let cut = &bytes[..end.index(bytes.len())];
            prop_assert!(KeyState::from_bytes(algorithm, cut).is_none());
            let mut damaged = bytes.clone();
            damage.iter().for_each(|(at, byte)| damaged[at.index(bytes.len())] = *byte);
            if damaged != bytes {
                prop_assert!(KeyState::from_bytes(algorithm, &damaged).is_none());
            }
            damaged.truncate(bytes.len() - SUM_BYTES);
            damaged.extend(checksum(&damaged));
            if let Some(mut state) = KeyState::from_bytes(algorithm, &damaged) {
                let _ = state.expires_at();
                for quota in [quota(30, 1_000, algorithm), quota(50, 5_000, algorithm)] {
                    let _ = state.standing(&quota, now, 3);
                    let _ =
                        state.spend(&quota, Asked::forced(2), At { now, budget: &UnlimitedMemory });
                    let _ = (state.standing(&quota, now, 3), state.to_bytes());
                }
            }
            Ok(())
        });
    }

    #[test]
    fn the_bytes_of_another_algorithm_or_version_are_no_state() {
        let (bucket, _) = state(Algorithm::TokenBucket { burst: 9 }, &[(3, 0, 1_000)]);
        let bytes = bucket.to_bytes();
        assert_eq!(bytes.len(), 2 + 5 * 8 + SUM_BYTES);
        assert!(KeyState::from_bytes(Algorithm::TokenBucket { burst: 5 }, &bytes).is_some());
        assert!(KeyState::from_bytes(Algorithm::FixedWindow, &bytes).is_none());
        let mut newer = bytes[..bytes.len() - SUM_BYTES].to_vec();
        newer[0] = VERSION + 1;
        newer.extend(checksum(&newer));
        assert!(KeyState::from_bytes(Algorithm::TokenBucket { burst: 9 }, &newer).is_none());
    }
}

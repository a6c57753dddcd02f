//! The quotas of limits that are written as requests per unit.

use plimsoll::{Algorithm, Error, Quota};

use super::unit::Unit;

/// Returns the quota of a number of requests per unit.
///
/// # Errors
///
/// Returns an error if the number is 0, or if the algorithm cannot count it.
pub(super) fn quota_of(requests: u32, unit: Unit, algorithm: Algorithm) -> Result<Quota, Error> {
    let keeps_log = matches!(algorithm, Algorithm::SlidingLog | Algorithm::SlidingBuckets(_));
    let algorithm = match algorithm {
        _ if keeps_log && u64::from(requests) > Quota::MAX_LOGGED => Algorithm::SlidingCounter,
        other => other,
    };
    Quota::new_with_algorithm(requests.into(), unit.window(), algorithm)
}

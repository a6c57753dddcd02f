//! The counting of leased quotas, from its description.

use num_bigint::BigInt;
use num_rational::BigRational;
use plimsoll::Quota;

use crate::algorithms::{Returns, returns, with_burst};

/// The quota without a lease by which a store counts one with a lease. An embedded store ignores
/// leases.
pub fn counted(quota: &Quota, is_shared: bool) -> Quota {
    if quota.is_concurrent() {
        return *quota;
    }
    let whole = |number: u128| BigRational::from_integer(BigInt::from(number));
    let (limit, mut window, mut algorithm) = (quota.limit(), quota.window(), quota.algorithm());
    if let Some(lease) = quota.lease().filter(|_| is_shared) {
        match returns(algorithm) {
            Returns::AfterWindow => window += lease,
            Returns::AtRate => {
                algorithm = with_burst(quota, |burst| {
                    let part = whole(lease.as_nanos()) / whole(window.as_nanos());
                    let left = whole(u128::from(burst)) - (whole(u128::from(limit)) * part).ceil();
                    u64::try_from(left.to_integer()).expect("at least 1 unit")
                });
            }
            Returns::ByPeriod => {}
        }
    }
    Quota::new(limit, window, algorithm).expect("in bounds")
}

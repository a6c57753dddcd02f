//! Refunds without a receipt.

use super::state::LimiterState;
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Receipt, ReceiptLine, Source},
    error::Error,
    policy::{Charge, Charges},
    quota::UnitsReturn,
};

/// The most records of a log that are searched for units.
const MAX_RECORDS: usize = 64;

/// Refunds units of each key. Returns their number.
///
/// A forced charge of one unit shows the mark of the newest record, from which the marks of the others follow.
pub(super) async fn refund_units(
    limiter: &LimiterState,
    charges: &Charges<'_>,
) -> Result<u64, Error> {
    let mut refunded = 0;
    for charge in charges.iter().filter(|charge| charge.cost() > 0) {
        let probe = charge.clone().into_owned().with_cost(1);
        let reply = limiter.force(std::slice::from_ref(&probe)).await?;
        let Some(newest) = reply.charges.first() else { continue };
        let search = Search { limiter, probe, time: reply.time, source: reply.source };
        refunded += search.refund(newest, charge.cost()).await?;
    }
    Ok(refunded)
}

/// The search for the records of units.
struct Search<'l> {
    limiter: &'l LimiterState,
    probe: Charge<'static>,
    time: Timestamp,
    source: Source,
}

impl Search<'_> {
    /// Refunds the unit of the probe, and up to `units` others. Returns the number of the others.
    async fn refund(&self, newest: &ChargeReply, units: u64) -> Result<u64, Error> {
        let quota = self.probe.quota();
        let number = newest.mark.parts()[0];
        match quota.algorithm().units_return() {
            // Units in flight expire. The oldest are released, so that those that stay expire last. Between two
            // units there is mostly the record of a probe, so the oldest is searched from there on, and then
            // before.
            UnitsReturn::AfterWindow if quota.is_concurrent() => {
                self.refund_record(newest.mark, newest.units).await?;
                let used = quota.limit().saturating_sub(newest.standing.remaining) + 1;
                let oldest = number.saturating_sub(used.saturating_mul(2));
                let records = (oldest..=number).chain((0..oldest).rev());
                self.refund_records(newest.mark, records, units).await
            }
            UnitsReturn::AfterWindow => {
                let records = (0..=number).rev();
                let all = self.refund_records(newest.mark, records, units + newest.units).await?;
                Ok(all.saturating_sub(newest.units))
            }
            // All units of a key are counted together.
            UnitsReturn::AtRate { .. } | UnitsReturn::ByPeriod => {
                let all = self.refund_record(newest.mark, units + newest.units).await?;
                Ok(all.saturating_sub(newest.units))
            }
        }
    }

    /// Refunds up to `units` units of the records with these numbers.
    async fn refund_records(
        &self,
        newest: Mark,
        numbers: impl Iterator<Item = u64>,
        units: u64,
    ) -> Result<u64, Error> {
        let [_, second, third] = newest.parts();
        let mut left = units;
        for number in numbers.take(MAX_RECORDS) {
            let mark = Mark::new([number, second, third]);
            left = left.saturating_sub(self.refund_record(mark, left).await?);
            if left == 0 {
                break;
            }
        }
        Ok(units - left)
    }

    /// Refunds up to `units` units of a record.
    async fn refund_record(&self, mark: Mark, units: u64) -> Result<u64, Error> {
        let line = ReceiptLine::new(self.probe.clone(), units, mark);
        let reply = self.limiter.refund(&Receipt::new(self.time, self.source, [line])).await?;
        Ok(reply.charges.iter().map(|charge| charge.units).sum())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Algorithm, Decision, Limiter, ManualClock, MemoryConfig, MemoryStore, Policy, Quota,
    };

    #[tokio::test]
    async fn units_come_back_without_a_receipt_under_each_algorithm() {
        let algorithms = Algorithm::EACH
            .iter()
            .map(|algorithm| algorithm.map_burst(|_| 10))
            .map(|algorithm| Quota::per_minute(10).with_algorithm(algorithm).unwrap());
        for quota in algorithms.chain([Quota::concurrent(10)]) {
            let clock = ManualClock::at(1_700_000_000_000_000);
            let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
            let (limiter, policy) = (Limiter::new(store), Policy::new("p", quota).unwrap());
            let remaining = async || match limiter.peek(policy.charge("k", 0)).await.unwrap() {
                Decision::Allowed(allowed) => allowed.remaining().unwrap(),
                Decision::Denied(denied) => panic!("{denied:?}"),
            };
            for cost in [3, 1, 4] {
                assert!(limiter.check(policy.charge("k", cost)).await.unwrap().is_allowed());
                clock.advance(std::time::Duration::from_millis(1));
            }
            assert_eq!(remaining().await, 2, "{quota}");
            assert_eq!(limiter.refund_units(policy.charge("k", 6)).await.unwrap(), 6, "{quota}");
            assert_eq!(remaining().await, 8, "{quota}");
            // No more comes back than was spent. The bucket has paid back a part of a unit already.
            let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket { .. });
            let (left, back) = if is_bucket { (1, 9) } else { (2, 10) };
            assert_eq!(
                limiter.refund_units(policy.charge("k", 50)).await.unwrap(),
                left,
                "{quota}"
            );
            assert_eq!(remaining().await, back, "{quota}");
            assert_eq!(
                limiter.refund_units(policy.charge("other", 1)).await.unwrap(),
                0,
                "{quota}"
            );
        }
    }

    #[tokio::test]
    async fn the_oldest_units_in_flight_are_released() {
        let clock = ManualClock::at(1_700_000_000_000_000);
        let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let limiter = Limiter::new(store);
        let policy = Policy::new("p", "3 concurrent expires(10s)").unwrap();
        let admits = async || limiter.check(policy.charge("k", 1)).await.unwrap().is_allowed();
        // Three units are in flight all the time. Each is older than the expiry in the end, but never is the
        // limit exceeded, because the released ones are the oldest.
        for _ in 0..3 {
            assert!(admits().await);
        }
        for step in 0..60 {
            assert!(!admits().await, "{step}");
            assert_eq!(limiter.refund_units(policy.charge("k", 1)).await.unwrap(), 1, "{step}");
            clock.advance(std::time::Duration::from_secs(1));
            assert!(admits().await, "{step}");
        }
    }
}

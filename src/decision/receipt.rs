//! The receipt of a check, for a refund or a settlement.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{ChargeReply, Mark, Source};
use crate::{
    clock::Timestamp,
    policy::{Charge, OnFailure},
    quota::Quota,
};

/// The receipt of an admitted check, which a refund or a settlement needs.
///
/// It has a line for each charge that was made. Two kinds are not made, and so neither refunded nor
/// settled: a [shadow](crate::Charge::shadow) or a [trial](crate::Charge::trial) that did not pass, and a
/// charge that passed because of [`OnFailure::Allow`](crate::OnFailure) while the store could not answer. A
/// charge of 0 units that the store admits is made, so that its whole cost can be settled later.
///
/// It can be used once, so it cannot be cloned. [`Allowed::into_receipt`](crate::decision::Allowed) creates
/// it, and [`Limiter::hold`](crate::Limiter::hold) turns it into a
/// [`Reservation`](crate::limiter::Reservation).
///
/// ```
/// use plimsoll::{Decision, Limiter, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// let limiter = Limiter::in_memory();
/// let tokens = Policy::new("tokens", Quota::per_day(1_000))?;
///
/// if let Decision::Allowed(allowed) = limiter.check(tokens.charge("alice", 100)).await? {
///     let receipt = allowed.into_receipt();
///     assert_eq!(receipt.lines()[0].units, 100);
///     limiter.hold(receipt).settle(30).await?; // refunds 70 units
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping a receipt keeps the charge"]
pub struct Receipt {
    /// The store's time of the check.
    pub time: Timestamp,
    /// The kind of store that decided.
    pub source: Source,
    lines: SmallVec<[ReceiptLine; 1]>,
}

/// One line of a [`Receipt`]: a charge, and the units that were spent for it.
#[derive(Debug)]
pub struct ReceiptLine {
    /// The charge, with the quota under which it was decided.
    pub charge: Charge<'static>,
    /// The units that were spent.
    pub units: u64,
    /// The record of the charge, with which the store refunds its units.
    pub mark: Mark,
}

impl Receipt {
    /// Restores a receipt from its parts, which were stored outside of this process: in a token that a client
    /// sends back, or in a queue of jobs.
    ///
    /// The caller makes sure that each receipt is used once. A store refunds only units that it still counts,
    /// but it cannot tell two charges of the same microsecond apart.
    ///
    /// - A receipt of the source [`Shared`](Source::Shared) can be used by each process that shares the store.
    /// - One of the source [`Local`](Source::Local) or [`Fallback`](Source::Fallback) can be used only by the
    ///   process that made it, because the units are in its memory.
    /// - One of the source [`Leased`](Source::Leased) is restored in another process as `Shared`.
    ///
    /// ```
    /// use plimsoll::{Decision, Limiter, Policy, Quota, decision::{Receipt, ReceiptLine}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let tokens = Policy::new("tokens", Quota::per_day(1_000))?;
    /// let Decision::Allowed(allowed) = limiter.check(tokens.charge("alice", 100)).await? else { return Ok(()) };
    /// let receipt = allowed.into_receipt();
    /// let line = &receipt.lines()[0];
    /// let stored = (receipt.time, receipt.source, *line.charge.quota(), line.units, line.mark);
    ///
    /// let (time, source, quota, units, mark) = stored;
    /// let line = ReceiptLine::from_parts(tokens.charge("alice", units), quota, units, mark);
    /// let restored = Receipt::new(time, source, [line]);
    /// assert_eq!(limiter.hold(restored).refund().await?, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        time: Timestamp,
        source: Source,
        lines: impl IntoIterator<Item = ReceiptLine>,
    ) -> Self {
        let mut receipt = Self { time, source, lines: SmallVec::new() };
        // Mostly there is one, which `collect` moves more often.
        lines.into_iter().for_each(|line| receipt.lines.push(line));
        receipt
    }

    /// Returns a line for each charge that was made, in their order.
    #[must_use]
    pub fn lines(&self) -> &[ReceiptLine] {
        &self.lines
    }

    /// Returns the receipt of the units in flight, if there are any. If all units of this receipt are in flight,
    /// returns this receipt.
    pub(crate) fn in_flight(self: &Arc<Self>) -> Option<Arc<Self>> {
        let in_flight = self.lines.iter().filter(|line| line.is_in_flight()).count();
        if in_flight == 0 {
            None
        } else if in_flight == self.lines.len() {
            Some(Arc::clone(self))
        } else {
            Some(Arc::new(self.copy(ReceiptLine::is_in_flight)))
        }
    }

    /// Returns a copy of some lines. Only one of them is used.
    pub(crate) fn copy(&self, is_copied: impl Fn(&ReceiptLine) -> bool) -> Self {
        let lines = self.lines.iter().filter(|line| is_copied(line)).map(|line| ReceiptLine {
            charge: line.charge.clone(),
            units: line.units,
            mark: line.mark,
        });
        Self::new(self.time, self.source, lines)
    }

    /// Returns a copy without the lines of concurrency limits, whose units are released and never charged later.
    pub(crate) fn without_in_flight(&self) -> Self {
        self.copy(|line| !line.charge.quota().is_concurrent())
    }

    /// Adds the lines of another receipt of the same source.
    pub(crate) fn append(&mut self, other: &Self) {
        self.lines.extend(other.copy(|_| true).lines);
    }

    pub(crate) fn into_lines(self) -> impl Iterator<Item = ReceiptLine> {
        self.lines.into_iter()
    }

    /// Splits the receipt so that each line ends at `units`: into a receipt to refund, and the
    /// charges to make in addition.
    pub(crate) fn settle(self, units: u64) -> (Self, SmallVec<[Charge<'static>; 1]>) {
        let mut additional = SmallVec::new();
        let mut refund = Self { time: self.time, source: self.source, lines: SmallVec::new() };
        for mut line in self.lines {
            if line.units < units {
                additional.push(line.charge.with_cost(units - line.units));
            } else if line.units > units {
                line.units -= units;
                refund.lines.push(line);
            }
        }
        (refund, additional)
    }
}

impl ReceiptLine {
    /// Returns whether the units are in flight, so that they are released when the work has ended.
    fn is_in_flight(&self) -> bool {
        self.charge.quota().is_concurrent() && self.units > 0
    }

    pub(crate) fn new(charge: Charge<'static>, units: u64, mark: Mark) -> Self {
        Self { charge, units, mark }
    }

    /// Creates the line of a charge in an admitted check that `source` decided, for at most
    /// `max_units` of its units. Returns `None` if the charge was not made.
    pub(super) fn of_reply(
        charge: &Charge<'_>,
        reply: &ChargeReply,
        source: Source,
        max_units: u64,
    ) -> Option<Self> {
        let is_undecided = source == Source::Fallback && charge.on_failure() == OnFailure::Allow;
        let is_made = reply.units > 0 || (charge.cost() == 0 && !is_undecided);
        is_made
            .then(|| Self::new(charge.clone().into_owned(), reply.units.min(max_units), reply.mark))
    }

    /// Restores a line from its parts: see [`Receipt::new`].
    ///
    /// `charge` has the policy and the key. `quota` is the quota that [decided](Charge::quota) it at that time:
    /// the policy may have another one by now.
    #[must_use]
    pub fn from_parts(charge: Charge<'_>, quota: Quota, units: u64, mark: Mark) -> Self {
        Self::new(charge.decided_under(quota).into_owned(), units, mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decision::{Standing, Verdict},
        policy::Policy,
    };

    fn policy(quota: Quota) -> Policy {
        Policy::new("policy", quota).unwrap()
    }

    fn receipt(quota: Quota, units: &[u64]) -> Receipt {
        let policy = policy(quota);
        let line = |&units: &u64| {
            ReceiptLine::new(policy.charge(1, units).into_owned(), units, Mark::default())
        };
        Receipt::new(Timestamp::default(), Source::Local, units.iter().map(line))
    }

    fn units(receipt: &Receipt) -> Vec<u64> {
        receipt.lines().iter().map(|line| line.units).collect()
    }

    /// Lines that have these units already are in neither.
    #[test]
    fn a_settlement_refunds_what_is_too_much_and_charges_what_is_missing() {
        let (refund, additional) = receipt(Quota::per_day(9), &[3, 5, 9]).settle(5);
        assert_eq!(units(&refund), [4]);
        let costs: Vec<u64> = additional.iter().map(Charge::cost).collect();
        assert_eq!(costs, [2]);
    }

    #[test]
    fn units_are_in_flight_if_a_concurrency_limit_counts_them() {
        let (day, jobs) = (Quota::per_day(9), Quota::concurrent(9));
        let mut both = receipt(day, &[3]);
        both.append(&receipt(jobs, &[0, 2]));
        let both = Arc::new(both);
        assert_eq!(both.in_flight().map(|held| units(&held)), Some(vec![2]));
        assert!(Arc::new(receipt(day, &[3])).in_flight().is_none());
        assert_eq!(units(&both.without_in_flight()), [3]);
    }

    /// A charge of 0 units is made, unless it was allowed because no store could decide.
    #[test]
    fn a_receipt_has_the_charges_that_were_made() {
        let policy = policy(Quota::per_day(9));
        let [allowing, local] = [OnFailure::Allow, OnFailure::Local]
            .map(|action| policy.charge(1, 0).with_on_failure(action).into_owned());
        let is_made = |charge: &Charge<'static>, cost: u64, units: u64, source| {
            let (verdict, standing) = (Verdict::Passed, Standing::full(9));
            let reply = ChargeReply { verdict, units, standing, mark: Mark::default() };
            let charge = charge.clone().with_cost(cost);
            ReceiptLine::of_reply(&charge, &reply, source, 2).map(|line| line.units)
        };
        for charge in [&allowing, &local] {
            for source in [Source::Shared, Source::Fallback] {
                assert_eq!(is_made(charge, 1, 1, source), Some(1));
                assert_eq!(is_made(charge, 5, 5, source), Some(2), "at most 2 are asked for");
                assert_eq!(is_made(charge, 1, 0, source), None);
            }
            assert_eq!(is_made(charge, 0, 0, Source::Shared), Some(0));
        }
        assert_eq!(is_made(&local, 0, 0, Source::Fallback), Some(0));
        assert_eq!(is_made(&allowing, 0, 0, Source::Fallback), None);
    }
}

//! Properties of every decision, and of all decisions together.

use plimsoll::{Decision, decision::Outcome, store::Verdict};

use super::run::Player;
use crate::{
    algorithms, micros, most_in_any_window,
    oracle::{Ask, ExpectedReply, Finding},
};

/// Returns what the limiter has found out about one charge, in the words of the oracle.
pub(super) fn finding(outcome: &Outcome<'_>) -> Finding {
    let standing = outcome.standing();
    Finding {
        verdict: outcome.verdict(),
        granted: outcome.granted(),
        limit: standing.limit,
        remaining: standing.remaining,
        next_after: micros(standing.next_after),
        reset_after: micros(standing.reset_after),
        retry_after: standing.retry_after.map(micros),
    }
}

impl Player<'_> {
    /// After the wait the check is admitted, and a microsecond before it is not.
    pub fn exact(&mut self, asks: &[Ask], wait: u64) {
        assert!(wait > 0);
        self.last_wait = wait;
        self.due = self.time + wait;
        if self.time + wait < 1 << 53 {
            self.fixture.set(self.time + wait - 1);
            assert!(!self.peek(asks).is_allowed(), "admitted before {wait} us have passed");
            self.fixture.set(self.time + wait);
            assert!(self.peek(asks).is_allowed(), "not admitted after {wait} us");
            self.fixture.set(self.time);
            self.tally.count("exact wait proved");
        }
    }

    pub fn compare(&self, decision: &Decision<'_>, expected: &ExpectedReply) {
        let found: Vec<_> = decision.outcomes().map(|outcome| finding(&outcome)).collect();
        assert_eq!(found, expected.findings, "at {} (left: limiter, right: oracle)", self.time);
        assert_eq!(decision.is_allowed(), expected.admitted);
        assert_eq!(decision.time().as_micros(), self.time);
    }

    /// No trailing window holds more than the published bound of what was admitted under the quota
    /// in force: since the start, or since its last change.
    pub fn bounds_of(&self, index: usize) {
        let quota = self.quota(index);
        let since = self.changes[index].map_or(0, |change| change.admitted);
        let restarted = |entry| self.reset.contains(&entry) || self.oracle.healed.contains(&entry);
        for key in (0..2).filter(|key| !restarted((index, *key))) {
            let mine = self.admitted[since..].iter().filter(|it| it.entry == (index, key));
            let spent: Vec<_> = mine.map(|it| (it.time, it.units)).collect();
            let most = most_in_any_window(&spent, micros(quota.window()));
            let bound = u128::from(algorithms::most(&quota));
            assert!(most <= bound, "{most} units in a window of {quota}: {spent:?}");
            let case = if since == 0 { "bound proved" } else { "bound proved after a change" };
            self.tally.count_if(!spent.is_empty(), case);
        }
    }

    pub fn count(&self, asks: &[Ask], reply: &ExpectedReply) {
        let tally = self.tally;
        tally.count(if reply.admitted { "admitted" } else { "denied" });
        let mut findings = reply.findings.iter();
        let over = findings.clone().any(|it| it.verdict == Verdict::OverCapacity);
        tally.count_if(over, "over capacity");
        tally.count_if(asks.iter().any(|ask| ask.cost == 0), "cost of 0");
        tally.count_if(asks.len() > 1, "several charges");
        tally.count_if(reply.findings.len() < asks.len(), "the same policy and key twice");
        let pairs = asks.iter().any(|one| {
            asks.iter()
                .any(|other| one.entry == other.entry && one.enforcement != other.enforcement)
        });
        tally.count_if(pairs && reply.admitted, "shadow beside its own charge");
        let refused = findings.any(|it| it.verdict == Verdict::Refused);
        tally.count_if(refused && reply.admitted, "shadow refused, check admitted");
        let spent = reply.paid.iter().any(|paid| paid.units > 0);
        tally.count_if(spent && !reply.admitted, "trial spent, check denied");
        let more = reply.paid.iter().any(|paid| paid.units > paid.ask.cost);
        tally.count_if(more, "granted more than the cost");
        let lease = reply.paid.iter().any(|paid| paid.ask.lease && paid.units > paid.ask.cost);
        tally.count_if(lease, "lease granted");
        for (ask, finding) in asks.iter().zip(&reply.findings).filter(|_| asks.len() == 1) {
            let blocked = self.oracle.blocked_for(self.time, ask.entry);
            let longer = blocked > 0 && finding.retry_after.is_some_and(|wait| wait > blocked);
            tally.count_if(longer, "block that ended before its algorithm's wait");
        }
        let waited = reply.admitted && self.time == self.due;
        tally.count_if(waited, "waited exactly, then admitted");
    }
}

//! Forced charges and blocks in a history.

use std::time::Duration;

use plimsoll::Quota;

use super::{
    history::{Part, PlannedCharge},
    run::{Player, key},
};
use crate::{
    micros, now,
    oracle::{Enforcement, Entry},
};

impl Player<'_> {
    /// The units are not counted by the bounds, which speak of admitted ones.
    pub fn penalize(&mut self, line: &PlannedCharge) {
        let asks =
            self.asks(&[PlannedCharge { most: None, enforcement: Enforcement::Live, ..*line }]);
        let [mut ask] = asks[..] else { unreachable!("one line") };
        ask.cost = ask.cost.min(2 * ask.quota.capacity() + 3);
        let charge = self.policies[ask.entry.0].charge(key(ask.entry), ask.cost);
        let allowed = now(self.fixture.limiter.penalize(charge)).expect("the store answers");
        let (expected, _) = self.oracle.penalize(self.time, &ask);
        let outcome = allowed.outcomes().next().expect("one charge");
        let standing = outcome.standing();
        assert_eq!(outcome.granted(), ask.cost);
        assert_eq!(
            (standing.remaining, micros(standing.next_after), micros(standing.reset_after)),
            (expected.remaining, expected.next_after, expected.reset_after),
        );
        self.charged(ask.entry, ask.cost);
        self.tally.count_if(ask.cost > 0, "penalty");
    }

    pub fn block(&mut self, line: &PlannedCharge, part: Part) {
        let entry = self.entry(line);
        let policy = &self.policies[entry.0];
        let window = micros(policy.quota().window());
        let duration = part.of(window).clamp(1, micros(Quota::MAX_WINDOW));
        let before = self.oracle.blocked_for(self.time, entry);
        let charge = policy.charge(key(entry), 1);
        let blocked = self.fixture.limiter.block(charge, Duration::from_micros(duration));
        now(blocked).expect("the store answers");
        self.oracle.block(self.time, entry, duration);
        self.tally.count("block");
        self.tally.count_if(before > duration, "block shorter than the one in force");
        self.tally.count_if((1..duration).contains(&before), "block extended");
    }

    pub fn unblock(&mut self, line: &PlannedCharge) {
        let entry = self.entry(line);
        let charge = self.policies[entry.0].charge(key(entry), 1);
        let before = self.oracle.blocked_for(self.time, entry);
        now(self.fixture.limiter.unblock(charge)).expect("the store answers");
        self.oracle.unblock(self.time, entry);
        self.tally.count_if(before > 0, "block lifted");
    }

    fn entry(&self, line: &PlannedCharge) -> Entry {
        (line.policy % self.policies.len(), line.key)
    }
}

//! Forced charges and blocks in a history.

use std::time::Duration;

use tollgate::Limiter;

use super::{
    history::{ChargeReply, Part},
    oracle::Slot,
    run::{Player, key},
    support::{micros, now},
};

impl Player<'_> {
    /// The units are not counted by the bounds, which speak of admitted ones.
    pub(crate) fn penalize(&mut self, line: &ChargeReply) {
        let asks = self.asks(&[ChargeReply { most: None, shadow: false, ..*line }]);
        let [mut ask] = asks[..] else { unreachable!("one line") };
        ask.cost = ask.cost.min(2 * ask.quota.capacity() + 3);
        let charge = self.policies[ask.slot.0].charge(key(ask.slot), ask.cost);
        let allowed = now(self.fixture.limiter.penalize(charge)).expect("the store answers");
        let (expected, _) = self.oracle.penalize(self.time, &ask);
        let outcome = allowed.outcomes().get(0).expect("one charge");
        let standing = outcome.standing();
        assert_eq!(outcome.granted(), ask.cost);
        assert_eq!(
            (standing.remaining(), micros(standing.next_after()), micros(standing.reset_after())),
            (expected.remaining, expected.next_after, expected.reset_after),
        );
        self.charged(ask.slot, ask.cost);
        self.tally.count_if(ask.cost > 0, "penalty");
    }

    pub(crate) fn block(&mut self, line: &ChargeReply, part: Part) {
        let slot = self.slot(line);
        let policy = &self.policies[slot.0];
        let window = micros(policy.quota().window());
        let duration = part.of(window).clamp(1, micros(Limiter::MAX_BLOCK));
        let before = self.oracle.blocked_for(self.time, slot);
        let charge = policy.charge(key(slot), 1);
        let blocked = self.fixture.limiter.block(charge, Duration::from_micros(duration));
        now(blocked).expect("the store answers");
        self.oracle.block(self.time, slot, duration);
        self.tally.count("block");
        self.tally.count_if(before > duration, "block shorter than the one in force");
        self.tally.count_if((1..duration).contains(&before), "block extended");
    }

    pub(crate) fn unblock(&mut self, line: &ChargeReply) {
        let slot = self.slot(line);
        let charge = self.policies[slot.0].charge(key(slot), 1);
        let before = self.oracle.blocked_for(self.time, slot);
        now(self.fixture.limiter.unblock(charge)).expect("the store answers");
        self.oracle.unblock(self.time, slot);
        self.tally.count_if(before > 0, "block lifted");
    }

    fn slot(&mut self, line: &ChargeReply) -> Slot {
        let slot = (line.policy % self.policies.len(), line.key);
        self.look(slot);
        slot
    }
}

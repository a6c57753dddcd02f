//! The decision on the charges of a request, over states that a store holds: the same code for the
//! embedded store and for a [`Step`](super::Step).

use std::time::Duration;

use super::Request;
use crate::{
    algorithm::{Asked, At, Block, KeyState, Refund},
    clock::Timestamp,
    decision::{ChargeReply, Mark, ReceiptLine, Standing, Verdict},
    policy::Charge,
    quota::Quota,
};

/// The kinds of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Acquire,
    Peek,
    Force,
}

impl Mode {
    /// Returns whether a charge to a key that has spent nothing would spend something.
    pub(crate) fn spends(self, charge: &Charge<'_>) -> bool {
        self.asked(charge).units(charge.quota().capacity()) > 0
    }

    /// Returns the units that the charge asks for.
    fn asked(self, charge: &Charge<'_>) -> Asked {
        match self {
            Self::Force => Asked::forced(charge.cost()),
            Self::Acquire | Self::Peek => charge.asked(),
        }
    }

    /// Spends the charge, unless too few units are free or it costs nothing.
    pub(crate) fn spend(
        self,
        charge: &Charge<'_>,
        state: &mut KeyState,
        at: At<'_>,
    ) -> ChargeReply {
        state.spend(charge.quota(), self.asked(charge), at)
    }
}

/// The states of the charges of a request, each found by the index of its charge.
pub(crate) trait States {
    /// Returns the state of the key, if it has one.
    fn get(&mut self, index: usize) -> Option<&mut KeyState>;

    /// Returns the state of the key. A key without a state gets a new one.
    fn get_or_insert(&mut self, index: usize, charge: &Charge<'_>) -> &mut KeyState;

    fn remove(&mut self, index: usize);

    /// Makes room for the keys without a state whose charges spend.
    fn make_room(&mut self, _: &[Charge<'_>], _: Timestamp, _spends: &dyn Fn(&Charge<'_>) -> bool) {
    }

    /// Returns the quota by which the store counts a charge now.
    fn quota_in_force(&self, charge: &Charge<'_>) -> Quota {
        charge.quota_in_force()
    }

    /// Executes a request. Returns the reply to each charge, or to each line of a receipt.
    fn execute(&mut self, request: Request<'_>, at: At<'_>) -> Vec<ChargeReply> {
        let charges = request.slice().iter().enumerate();
        match request {
            Request::Acquire(charges) => self.decide(charges, Mode::Acquire, at),
            Request::Peek(charges) => self.decide(charges, Mode::Peek, at),
            Request::Force(charges) => self.decide(charges, Mode::Force, at),
            Request::Refund(receipt) => {
                let lines = receipt.lines().iter().enumerate();
                lines.map(|(index, line)| self.refund(index, line, at)).collect()
            }
            Request::Reset(_) => {
                charges.map(|(index, charge)| self.reset(index, charge, at)).collect()
            }
            Request::Block(all, duration) => {
                self.make_room(all, at.now, &|_| true);
                let block = Block::new(at.now, duration);
                charges.map(|(index, charge)| self.block(index, charge, block, at)).collect()
            }
            Request::Unblock(_) => {
                charges.map(|(index, charge)| self.unblock(index, charge, at)).collect()
            }
        }
    }

    /// Returns whether every live charge passes.
    fn all_pass(&mut self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        let mut live = charges.iter().enumerate().filter(|(_, charge)| charge.is_live());
        live.all(|(index, charge)| match self.get(index) {
            Some(state) => state.affords(charge.quota(), now, charge.cost()),
            None => charge.cost() <= charge.quota().capacity(),
        })
    }

    /// Decides the charges of a check: all live ones are spent, or none.
    ///
    /// Each reply is written to its place in the vector as soon as it is known. A reply that was first
    /// kept on the stack would be copied with wider loads than the stores that wrote it, which stall the
    /// processor (`benches/check.rs`, three policies in one check).
    fn decide(&mut self, charges: &[Charge<'_>], mode: Mode, at: At<'_>) -> Vec<ChargeReply> {
        let admitted = mode == Mode::Force || self.all_pass(charges, at.now);
        if mode != Mode::Peek {
            // Only charges that spend need room.
            self.make_room(charges, at.now, &|charge| {
                (admitted || charge.is_trial()) && mode.spends(charge)
            });
        }
        let mut replies = Vec::with_capacity(charges.len());
        let has_second_pass = mode != Mode::Peek && !charges.iter().all(Charge::is_live);
        for (index, charge) in charges.iter().enumerate() {
            if has_second_pass && !charge.is_live() {
                // The second pass replaces it.
                replies.push(ChargeReply::peeked(charge.cost(), Standing::full(0)));
            } else if mode == Mode::Peek || !admitted {
                replies.push(peek(charge, self.get(index), at.now));
            } else {
                replies.push(self.spend(index, charge, mode, at));
            }
        }
        if !has_second_pass {
            return replies;
        }
        // Shadows and trials are decided last, so that they see the key as the live charges leave it. A
        // trial is spent whatever the decision on the check.
        for (index, (charge, reply)) in charges.iter().zip(&mut replies).enumerate() {
            if charge.is_trial() || (charge.is_shadow() && admitted) {
                *reply = self.spend(index, charge, mode, at);
            } else if charge.is_shadow() {
                *reply = peek(charge, self.get(index), at.now);
            }
        }
        replies
    }

    /// Spends a charge. One that costs more than the capacity, or nothing, makes no state.
    fn spend(&mut self, index: usize, charge: &Charge<'_>, mode: Mode, at: At<'_>) -> ChargeReply {
        if !mode.spends(charge) {
            return peek(charge, self.get(index), at.now);
        }
        mode.spend(charge, self.get_or_insert(index, charge), at)
    }

    /// Refunds the units of a charge that its key still counts.
    fn refund(&mut self, index: usize, line: &ReceiptLine, at: At<'_>) -> ChargeReply {
        let charge = &line.charge;
        let quota = self.quota_in_force(charge);
        let refund = Refund { quota: *charge.quota(), units: line.units, mark: line.mark };
        let units = self.get(index).map_or(0, |state| state.refund(&quota, at.now, &refund));
        let standing = standing(&quota, self.get(index), at.now, 0);
        ChargeReply { verdict: Verdict::Passed, units, standing, mark: line.mark }
    }

    /// Forgets the units that a key has spent, and its block.
    fn reset(&mut self, index: usize, charge: &Charge<'_>, at: At<'_>) -> ChargeReply {
        let is_found =
            standing(charge.quota(), self.get(index), at.now, 0).reset_after > Duration::ZERO;
        self.remove(index);
        found(is_found, Standing::full(charge.quota().capacity()))
    }

    fn block(
        &mut self,
        index: usize,
        charge: &Charge<'_>,
        block: Block,
        at: At<'_>,
    ) -> ChargeReply {
        let state = self.get_or_insert(index, charge);
        let is_found = state.standing(charge.quota(), at.now, 0).reset_after > Duration::ZERO;
        state.block(block, at);
        found(is_found, state.standing(charge.quota(), at.now, 0))
    }

    /// Lifts the block of a key.
    fn unblock(&mut self, index: usize, charge: &Charge<'_>, at: At<'_>) -> ChargeReply {
        let was_blocked = self.get(index).is_some_and(|state| {
            let was_blocked = state.is_blocked(at.now);
            state.unblock(at.budget);
            was_blocked
        });
        found(was_blocked, standing(charge.quota(), self.get(index), at.now, 0))
    }
}

/// Returns the standing of the key without spending anything.
pub(crate) fn peek(
    charge: &Charge<'_>,
    state: Option<&mut KeyState>,
    now: Timestamp,
) -> ChargeReply {
    ChargeReply::peeked(charge.cost(), standing(charge.quota(), state, now, charge.cost()))
}

/// Returns the standing of a key, which has no state if it has spent nothing.
fn standing(quota: &Quota, state: Option<&mut KeyState>, now: Timestamp, units: u64) -> Standing {
    match state {
        Some(state) => state.standing(quota, now, units),
        None => Standing::full(quota.capacity()),
    }
}

fn found(is_found: bool, standing: Standing) -> ChargeReply {
    let units = is_found.into();
    ChargeReply { verdict: Verdict::Passed, units, standing, mark: Mark::default() }
}

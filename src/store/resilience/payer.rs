//! Charges what is owed to the store.

use std::{future::poll_fn, pin::Pin, task::Poll};

use super::owed::{Debt, Owed};
use crate::{
    charge::Charge,
    clock::{Clock, Timestamp},
    error::{Error, ErrorKind},
    store::{Answer, Request, Store},
};

/// How many debts are on their way at once: each in a call of its own, so that each has the whole
/// deadline, and none is lost or kept waiting with another.
const AT_ONCE: usize = 16;

/// Charges what is owed, each debt at most once, as far as it is still due: what may have been
/// charged is not sent again, and what was not is owed as before. Says whether nothing is left.
pub(super) async fn pay(
    owed: &Owed,
    store: &dyn Store,
    clock: &dyn Clock,
    due: impl Fn(&Debt, Timestamp) -> Option<Charge<'static>>,
) -> bool {
    let mut round = Round { owed, refused: Vec::new(), refused_in_a_row: 0, goes_on: true };
    let mut sent: Vec<(Debt, Answer)> = Vec::with_capacity(AT_ONCE);
    loop {
        while round.goes_on && sent.len() < AT_ONCE {
            let now = clock.now();
            let Some(debt) = owed.take(now) else { break };
            if let Some(charge) = due(&debt, now) {
                sent.push((debt, store.call(Request::Force(&[charge]))));
            }
        }
        if sent.is_empty() {
            return round.goes_on && round.refused.is_empty();
        }
        let (debt, failure) = first(&mut sent).await;
        round.hear(debt, failure);
    }
}

struct Round<'o> {
    owed: &'o Owed,
    /// What was definitely not charged. It is put back at the end, lest it be tried again and again.
    refused: Vec<Debt>,
    refused_in_a_row: usize,
    goes_on: bool,
}

impl Round<'_> {
    fn hear(&mut self, debt: Debt, failure: Option<Error>) {
        let Some(error) = failure else {
            self.refused_in_a_row = 0;
            return;
        };
        self.refused_in_a_row += 1;
        // One that is refused may be so for what it is; when all are, it is the store.
        let store = error.is_uncertain() || error.kind() == ErrorKind::BreakerOpen;
        self.goes_on &= !store && self.refused_in_a_row < AT_ONCE;
        if !error.is_uncertain() {
            self.refused.push(debt);
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        for debt in self.refused.drain(..) {
            self.owed.put_back(debt);
        }
    }
}

/// The first of these to end, and what it failed with.
async fn first(sent: &mut Vec<(Debt, Answer)>) -> (Debt, Option<Error>) {
    poll_fn(|cx| {
        for place in 0..sent.len() {
            if let Poll::Ready(ruling) = Pin::new(&mut sent[place].1).poll(cx) {
                let (debt, _) = sent.swap_remove(place);
                return Poll::Ready((debt, ruling.err()));
            }
        }
        Poll::Pending
    })
    .await
}

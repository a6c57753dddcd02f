//! Charges what is owed to the store.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, task::AbortHandle, time::sleep};

use super::owed::{Debt, Owed};
use crate::{
    clock::{Clock, Timestamp},
    decision::{Standing, StoreReply},
    error::{Effect, Error, ErrorKind},
    policy::Charge,
    store::{Answer, MemoryStore, Request, Store},
};

/// The task that charges what is owed, if there is one.
#[derive(Debug, Default)]
pub(super) struct Payer {
    is_paying: Arc<AtomicBool>,
    task: Mutex<Option<AbortHandle>>,
}

/// How long to wait before trying again to charge what the store has refused.
const PAUSE: Duration = Duration::from_secs(1);

impl Payer {
    /// Starts to pay, unless that is under way. `pay` says whether nothing is left.
    pub(super) fn start<F>(&self, pay: impl FnOnce() -> F)
    where
        F: Future<Output = bool> + Send + 'static,
    {
        if self.is_paying.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_paying.swap(true, Ordering::AcqRel) {
            return;
        }
        let (paying, pay) = (Paying(Arc::clone(&self.is_paying)), pay());
        let task = runtime.spawn(async move {
            let _paying = paying;
            if !pay.await {
                sleep(PAUSE).await;
            }
        });
        if let Ok(mut last) = self.task.lock() {
            *last = Some(task.abort_handle());
        }
    }

    pub(super) fn stop(&self) {
        let task = self.task.lock().map(|mut task| task.take());
        if let Ok(Some(task)) = task {
            task.abort();
        }
    }
}

/// For as long as a task is charging what is owed, however it ends.
struct Paying(Arc<AtomicBool>);

impl Drop for Paying {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

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

/// What of a debt is still to be charged: as much as counts in this process, which is more or less
/// than the debt where it has forgotten the key, or has charged it other units.
pub(super) fn due(
    debt: &Debt,
    now: Timestamp,
    local: &MemoryStore,
    instances: u32,
) -> Option<Charge<'static>> {
    let charge = debt.charge();
    let (least, most) = debt.still_counts(now, instances);
    let share = charge.share(instances);
    let StoreReply { charges: lines, .. } = local.call_at(Request::Peek(&[share]), now);
    let Standing { limit, remaining, .. } = lines.first()?.standing;
    let units = limit.saturating_sub(remaining).clamp(least, most);
    (units > 0).then(|| charge.with_cost(units))
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
        let store = error.effect() != Effect::None || error.kind() == ErrorKind::BreakerOpen;
        self.goes_on &= !store && self.refused_in_a_row < AT_ONCE;
        if error.effect() == Effect::None {
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
            if let Poll::Ready(reply) = Pin::new(&mut sent[place].1).poll(cx) {
                let (debt, _) = sent.swap_remove(place);
                return Poll::Ready((debt, reply.err()));
            }
        }
        Poll::Pending
    })
    .await
}

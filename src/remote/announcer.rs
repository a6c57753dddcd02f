//! The instances that share a store: each limiter announces itself in it, and so learns how many there are.
//!
//! An instance holds one unit in flight under the policy `plimsoll-instances`, so the number of units in flight is the
//! number of instances. An announcement charges a new unit, and then refunds the old one. A unit that is not renewed
//! expires.

use std::{
    slice,
    sync::{Arc, LazyLock, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    breaker::Breakers,
    guarded::{Guarded, Guards, deadline_in},
};
use crate::{
    clock::micros,
    decision::{Receipt, ReceiptLine, Source, StoreReply},
    policy::{Charge, Policy},
    quota::Quota,
    random,
    runtime::RunningGuard,
    store::Request,
    telemetry,
};

/// The shortest time between two announcements. An announcement is two commands.
const INTERVAL: Duration = Duration::from_secs(2);
/// The longest random time that is added to the interval.
const JITTER: Duration = Duration::from_millis(250);
/// The time for which an instance counts after its last announcement.
const EXPIRY: Duration = Duration::from_secs(5);
/// The longest time for which an announcement waits for the store.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The highest count of instances.
const MAX_INSTANCES: u64 = 10_000;
/// The number of counts of which the highest is used. After an outage, each instance has to announce itself again, so
/// the first count is too low.
const REMEMBERED: usize = 4;

/// The policy of the units that stand for instances.
static POLICY: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let quota = Quota::concurrent(MAX_INSTANCES).expires(EXPIRY).ok()?;
    Policy::new("plimsoll-instances", quota).ok()
});

impl Guarded {
    /// Starts to announce this instance, unless a task does so or the store does not count.
    pub(super) fn start_announcing(&self) {
        let instances = &self.instances;
        if !instances.is_counting || instances.is_announced.is_set() {
            return;
        }
        let guards = Arc::downgrade(&self.0);
        instances.announcer.start(|| announce(guards, self.instances.is_announced.set()));
    }
}

/// Announces the instance until the limiter ends.
async fn announce(guards: Weak<Guards>, _is_announced: Option<RunningGuard>) {
    let Some(charge) = POLICY.as_ref().map(|policy| policy.charge("instances", 1)) else { return };
    let mut announcer = Announcer { guards, charge, held: None, counts: [0; REMEMBERED] };
    while announcer.announce().await.is_some() {
        sleep(INTERVAL + random::part_of(JITTER)).await;
    }
}

/// The state of the task that announces an instance. It holds no strong handle to the limiter while it waits.
struct Announcer {
    guards: Weak<Guards>,
    charge: Charge<'static>,
    /// The unit of the last announcement.
    held: Option<Receipt>,
    /// The last counts, the newest first.
    counts: [u32; REMEMBERED],
}

impl Announcer {
    /// Announces the instance once. Returns `None` if the limiter has ended.
    ///
    /// An announcement that fails leaves the number as it is. After it, [`REMEMBERED`] new counts are needed to lower
    /// the number. The breaker does not record announcements: an idle instance has no reason to probe the store. It does
    /// not stop them either: if the store is slow, busy instances whose breakers are open still count for idle ones.
    async fn announce(&mut self) -> Option<()> {
        let guarded = self.guarded()?;
        let asked_at = guarded.clocks.now();
        let request = Request::Force(slice::from_ref(&self.charge));
        let answer = guarded.call_store(request, deadline_in(Instant::now(), TIMEOUT));
        drop(guarded);
        let reply = answer.await;
        let guarded = self.guarded()?;
        let Ok(reply) = reply else {
            self.remember_highest();
            return Some(());
        };
        guarded.compare_clocks(&self.charge, asked_at, reply.time);
        self.count(&guarded, &reply);
        let Some(old) = self.hold(&reply) else { return Some(()) };
        let refund =
            guarded.call_store(Request::Refund(&old), deadline_in(Instant::now(), TIMEOUT));
        drop(guarded);
        // A unit that is not refunded expires.
        let _ = refund.await;
        Some(())
    }

    /// Uses the count in a reply. During an outage, the number of instances does not become smaller.
    fn count(&mut self, guarded: &Guarded, reply: &StoreReply) {
        let Some(unit) = reply.charges.first() else { return };
        let units = MAX_INSTANCES.saturating_sub(unit.standing.remaining);
        let since = reply.time.as_micros().saturating_sub(micros(EXPIRY));
        let is_counted_twice = self.held.as_ref().is_some_and(|old| old.time.as_micros() > since);
        let count = units.saturating_sub(u64::from(is_counted_twice)).max(1) as u32;
        let counted = &guarded.instances.counted;
        let lowest = if guarded.is_outage() { counted.load(Ordering::Relaxed) } else { 0 };
        self.counts.rotate_right(1);
        self.counts[0] = count.max(lowest);
        let highest = self.highest();
        counted.store(highest, Ordering::Relaxed);
        telemetry::instances_counted(highest);
    }

    /// Replaces all counts by the highest. While the store does not answer, the units of other instances expire, so the
    /// first counts after each of several short outages may be too low.
    fn remember_highest(&mut self) {
        self.counts = [self.highest(); REMEMBERED];
    }

    fn highest(&self) -> u32 {
        self.counts.into_iter().fold(0, u32::max)
    }

    /// Keeps the unit of a reply, and returns the one before it.
    fn hold(&mut self, reply: &StoreReply) -> Option<Receipt> {
        let unit = reply.charges.first()?;
        let line = ReceiptLine::new(self.charge.clone(), unit.units, unit.mark);
        self.held.replace(Receipt::new(reply.time, Source::Shared, [line]))
    }

    fn guarded(&self) -> Option<Guarded> {
        self.guards.upgrade().map(Guarded)
    }
}

impl Guards {
    /// Returns whether this process decides checks by itself, or has done so and the store has not been charged yet.
    fn is_outage(&self) -> bool {
        self.has_backlog() || self.breakers.as_ref().is_some_and(Breakers::any_is_open)
    }
}

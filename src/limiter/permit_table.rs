//! The table of the units in flight, with their receipts.

use std::{
    mem,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    decision::{Mark, Receipt, ReceiptLine, Source},
    policy::Charge,
    quota::Quota,
    sync::Mutex,
};

/// The number of shards, each with its own lock. A thread uses one of them.
const SHARDS: usize = 16;

/// The part of an expiry after which the renewer looks for units to renew again.
const ROUNDS_PER_EXPIRY: u64 = 8;
/// The longest time between two rounds of the renewer.
const MAX_ROUND: Duration = Duration::from_secs(5);
/// The number of rounds after which another renewer takes over, because the runtime of the first one does not
/// poll it.
const MAX_MISSED_ROUNDS: u64 = 3;

/// The receipts of the permits of a limiter. A renewer renews them until they are removed.
#[derive(Debug)]
pub(super) struct PermitTable {
    shards: [PermitShard; SHARDS],
    start: Instant,
    /// The time of the renewer's last round, in milliseconds since `start`. A permit is dated with it,
    /// because reading the clock costs as much as half a check in memory.
    round: AtomicU64,
    /// The time between two rounds, in milliseconds.
    interval: AtomicU64,
    pub(super) has_renewer: AtomicBool,
    /// The number of times that another renewer has taken over.
    takeovers: AtomicU64,
    /// Wakes the renewer when the interval becomes shorter, and when the limiter ends.
    pub(super) wakes_renewer: Arc<Notify>,
}

/// The alignment keeps two shards off the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PermitShard(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Place {
    /// The number of receipts that have been in this place.
    generation: u32,
    held: Option<HeldUnits>,
}

#[derive(Debug)]
struct HeldUnits {
    receipt: Receipt,
    /// The round in which, or after which, the units were taken or renewed.
    since: u64,
    is_renewing: bool,
}

/// The place of a receipt. It names no other receipt that is in the same place later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PermitId {
    shard: u32,
    place: u32,
    generation: u32,
}

impl Default for PermitTable {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            start: Instant::now(),
            round: AtomicU64::new(0),
            interval: AtomicU64::new(MAX_ROUND.as_millis() as u64),
            has_renewer: AtomicBool::new(false),
            takeovers: AtomicU64::new(0),
            wakes_renewer: Arc::default(),
        }
    }
}

impl PermitTable {
    /// Adds the receipt of units in flight.
    #[inline]
    pub(super) fn insert(&self, receipt: Receipt) -> PermitId {
        for line in receipt.lines() {
            self.shorten_interval(line.charge().quota());
        }
        let held =
            HeldUnits { receipt, since: self.round.load(Ordering::Relaxed), is_renewing: false };
        let shard = shard_of_thread();
        let mut places = self.lock(shard);
        let place = match places.free.pop() {
            Some(place) => place,
            None => {
                places.places.push(Place::default());
                places.places.len() as u32 - 1
            }
        };
        let free = &mut places.places[place as usize];
        free.held = Some(held);
        PermitId { shard, place, generation: free.generation }
    }

    /// Returns a copy of a receipt, which is not used.
    pub(super) fn copy(&self, id: PermitId) -> Option<Receipt> {
        let places = self.lock(id.shard);
        let place = places.places.get(id.place as usize);
        let held = place.filter(|place| place.generation == id.generation)?.held.as_ref();
        held.map(|held| held.receipt.copy(|_| true))
    }

    /// Removes a receipt.
    pub(super) fn remove(&self, id: PermitId) -> Option<Receipt> {
        let held = self.remove_with(id, Option::take)??;
        Some(held.receipt)
    }

    /// Removes a receipt of one line. Returns its mark and its units. The receipt is dropped in its place,
    /// because it is large (`benches/check.rs`, in flight).
    #[inline]
    pub(super) fn remove_line(&self, id: PermitId) -> Option<(Mark, u64)> {
        self.remove_with(id, |held| {
            let line = held.as_ref()?.receipt.lines().first().map(|it| (it.mark(), it.units()));
            *held = None;
            line
        })?
    }

    #[inline]
    fn remove_with<R>(
        &self,
        id: PermitId,
        take: impl FnOnce(&mut Option<HeldUnits>) -> R,
    ) -> Option<R> {
        let mut places = self.lock(id.shard);
        let place = places.places.get_mut(id.place as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let taken = take(&mut place.held);
        place.generation = place.generation.wrapping_add(1);
        places.free.push(id.place);
        Some(taken)
    }

    /// Ends a renewal with its receipt, if it has one. Returns the receipt of the units to release: the old
    /// one, or the new one if the permit was dropped meanwhile.
    pub(super) fn end_renewal(&self, id: PermitId, renewed: Option<Receipt>) -> Option<Receipt> {
        let mut places = self.lock(id.shard);
        let place = places.places.get_mut(id.place as usize);
        let place = place.filter(|place| place.generation == id.generation);
        let Some(held) = place.and_then(|place| place.held.as_mut()) else { return renewed };
        held.is_renewing = false;
        let old = mem::replace(&mut held.receipt, renewed?);
        held.since = self.round.load(Ordering::Relaxed);
        Some(old)
    }

    /// Begins a round of the renewer. Returns the charges to renew: those of the permits that have reached
    /// half of their expiry, and of those that the fallback has admitted. Returns `None` if there are no
    /// permits.
    pub(super) fn begin_round(&self) -> Option<Vec<(PermitId, Vec<Charge<'static>>)>> {
        let now = self.set_time();
        let (mut due, mut is_empty) = (Vec::new(), true);
        for shard in 0..SHARDS as u32 {
            let mut places = self.lock(shard);
            for (number, place) in places.places.iter_mut().enumerate() {
                let Some(held) = &mut place.held else { continue };
                is_empty = false;
                if let Some(charges) = self.due(held, now) {
                    held.is_renewing = true;
                    let (place, generation) = (number as u32, place.generation);
                    due.push((PermitId { shard, place, generation }, charges));
                }
            }
        }
        (!is_empty).then_some(due)
    }

    /// Returns the charges that renew these units, if it is time for it.
    fn due(&self, held: &HeldUnits, now: u64) -> Option<Vec<Charge<'static>>> {
        if held.is_renewing {
            return None;
        }
        let in_force = |charge: &Charge<'_>| charge.quota_in_force();
        let lines = || {
            // A policy may have become a rate meanwhile, whose units are not renewed.
            held.receipt.lines().iter().filter(|line| in_force(line.charge()).is_concurrent())
        };
        let shortest = lines().map(|line| in_force(line.charge()).window()).min()?;
        lines().for_each(|line| self.shorten_interval(&in_force(line.charge())));
        let age = now.saturating_sub(held.since);
        let is_due = age >= shortest.as_millis() as u64 / 2;
        let is_local = held.receipt.source() == Source::Fallback && age > 0;
        let renewal = |line: &ReceiptLine| {
            line.charge().clone().with_cost(line.units()).renewing(line.mark().highest_bit())
        };
        (is_due || is_local).then(|| lines().map(renewal).collect())
    }

    /// Reads the clock, and dates new permits with its time. Returns the time in milliseconds since `start`.
    pub(super) fn set_time(&self) -> u64 {
        let now = self.start.elapsed().as_millis() as u64;
        self.round.store(now, Ordering::Relaxed);
        now
    }

    /// Returns the last round of the renewer, if it has missed the ones behind it.
    pub(super) fn missed_since(&self) -> Option<u64> {
        let (round, now) = (self.round.load(Ordering::Relaxed), self.start.elapsed());
        let late = MAX_MISSED_ROUNDS * self.interval.load(Ordering::Relaxed);
        let is_late = (now.as_millis() as u64).saturating_sub(round) >= late;
        (is_late && self.has_renewer.load(Ordering::SeqCst)).then_some(round)
    }

    /// Ends the renewer whose last round was `round`. Returns true if the caller has to start another one.
    /// Permits whose renewal has begun are renewed again, which counts a unit too many for a short time.
    pub(super) fn take_over(&self, round: u64) -> bool {
        let (now, order) = (self.start.elapsed().as_millis() as u64, Ordering::SeqCst);
        if self.round.compare_exchange(round, now, order, order).is_err() {
            return false;
        }
        self.takeovers.fetch_add(1, Ordering::SeqCst);
        for shard in 0..SHARDS as u32 {
            let mut places = self.lock(shard);
            let held = places.places.iter_mut().filter_map(|place| place.held.as_mut());
            held.for_each(|held| held.is_renewing = false);
        }
        true
    }

    /// Returns the number of times that another renewer has taken over.
    pub(super) fn takeovers(&self) -> u64 {
        self.takeovers.load(Ordering::SeqCst)
    }

    /// Returns whether there are no permits.
    pub(super) fn is_empty(&self) -> bool {
        (0..SHARDS as u32).all(|shard| {
            let places = self.lock(shard);
            places.free.len() == places.places.len()
        })
    }

    /// Returns the time between two rounds.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval.load(Ordering::Relaxed))
    }

    #[inline]
    fn shorten_interval(&self, quota: &Quota) {
        let interval = quota.window_micros() / 1_000 / ROUNDS_PER_EXPIRY;
        if interval < self.interval.load(Ordering::Relaxed) {
            self.interval.fetch_min(interval.max(1), Ordering::Relaxed);
            self.wakes_renewer.notify_one();
        }
    }

    #[inline]
    fn lock(&self, shard: u32) -> MutexGuard<'_, Places> {
        self.shards[shard as usize % SHARDS].0.lock()
    }
}

impl Drop for PermitTable {
    fn drop(&mut self) {
        self.wakes_renewer.notify_one();
    }
}

/// Returns the shard of this thread.
#[inline]
fn shard_of_thread() -> u32 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: u32 = (NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS) as u32;
    }
    SHARD.try_with(|shard| *shard).unwrap_or_default()
}

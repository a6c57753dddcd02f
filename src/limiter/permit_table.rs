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

/// The part of an expiry after which units are renewed.
const RENEWALS_PER_EXPIRY: u64 = 4;
/// The part of an expiry after which the keeper looks for units to renew again.
const ROUNDS_PER_EXPIRY: u64 = 16;
/// The longest time between two rounds of the keeper.
const MAX_ROUND: Duration = Duration::from_secs(5);

/// The receipts of the permits of a limiter. The keeper renews them until they are removed.
#[derive(Debug)]
pub(super) struct PermitTable {
    shards: [PermitShard; SHARDS],
    start: Instant,
    /// The time of the keeper's last round, in milliseconds since `start`. A permit is dated with it,
    /// because reading the clock costs as much as half a check in memory.
    round: AtomicU64,
    /// The time between two rounds, in milliseconds.
    interval: AtomicU64,
    /// True while the keeper makes no rounds, because there are no permits.
    is_idle: AtomicBool,
    /// Wakes the keeper when a permit ends its idleness, when the interval becomes shorter, and when the limiter
    /// ends.
    pub(super) wakes_keeper: Arc<Notify>,
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
    /// The last round before the units were taken, or the round of their last renewal.
    since: u64,
    /// The round of the renewal in flight.
    renewing: Option<u64>,
}

/// A permit to renew, and the charges that renew it.
pub(super) type DuePermit = (PermitId, Vec<Charge<'static>>);

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
            is_idle: AtomicBool::new(true),
            wakes_keeper: Arc::default(),
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
        let held = HeldUnits { receipt, since: self.round.load(Ordering::Relaxed), renewing: None };
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
        let since = held.renewing.take();
        let old = mem::replace(&mut held.receipt, renewed?);
        held.since = since.unwrap_or(held.since);
        Some(old)
    }

    /// Begins a round of the keeper. Returns the permits to renew: those that have reached a quarter of their
    /// expiry, and those that the fallback has admitted. Returns `None` if there are no permits. The keeper is
    /// then idle until the next one.
    pub(super) fn begin_round(&self) -> Option<Vec<DuePermit>> {
        let now = self.set_time();
        let (mut due, mut is_empty) = (Vec::new(), true);
        for shard in 0..SHARDS as u32 {
            let mut places = self.lock(shard);
            for (number, place) in places.places.iter_mut().enumerate() {
                let Some(held) = &mut place.held else { continue };
                is_empty = false;
                if let Some(charges) = self.due(held, now) {
                    held.renewing = Some(now);
                    let (place, generation) = (number as u32, place.generation);
                    due.push((PermitId { shard, place, generation }, charges));
                }
            }
        }
        if is_empty {
            self.is_idle.store(true, Ordering::SeqCst);
            // A permit that is added from here on ends the idleness. One that was added before is seen now.
            if self.is_empty() {
                return None;
            }
            self.is_idle.store(false, Ordering::SeqCst);
        }
        Some(due)
    }

    /// Returns the charges that renew these units, if it is time for it.
    fn due(&self, held: &HeldUnits, now: u64) -> Option<Vec<Charge<'static>>> {
        if held.renewing.is_some() {
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
        let is_due = age >= shortest.as_millis() as u64 / RENEWALS_PER_EXPIRY;
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

    /// Returns whether the keeper makes no rounds.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::SeqCst)
    }

    /// Ends the idleness of the keeper, because there is a permit.
    #[cold]
    pub(super) fn end_idle(&self) {
        self.is_idle.store(false, Ordering::SeqCst);
        self.wakes_keeper.notify_one();
    }

    /// Returns whether there are no permits.
    fn is_empty(&self) -> bool {
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
            self.wakes_keeper.notify_one();
        }
    }

    #[inline]
    fn lock(&self, shard: u32) -> MutexGuard<'_, Places> {
        self.shards[shard as usize % SHARDS].0.lock()
    }
}

impl Drop for PermitTable {
    fn drop(&mut self) {
        self.wakes_keeper.notify_one();
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

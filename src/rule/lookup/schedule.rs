//! The order of loads: which of them run, wait, or are refused, by the measured time of loads.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, time::Instant};

use super::{
    load::{LoadProgress, NewLoad, Settings},
    queue::{Client, FairQueue},
};
use crate::runtime::saturating_add;

/// The largest number of loads that wait.
const MAX_WAITING: usize = 1_024;

/// The loads that run or wait, at most one for each key.
///
/// At most `max_loads` loads run at once. Further ones wait in a [`FairQueue`], and are refused if they
/// cannot end by their deadline, as far as the measured [`LoadTime`] tells. So the database does not work
/// for requests that have given up.
pub(super) struct Schedule<Q, T> {
    loads: HashMap<Q, ScheduledLoad<T>>,
    /// Loads wait only while `max_loads` are running.
    queue: FairQueue<NewLoad<Q, T>>,
    /// The numbers of the loads that run, and when they were created. Both rise together.
    running: BTreeMap<u64, Instant>,
    time: LoadTime,
    next_number: u64,
    /// True while a thread starts loads that have waited.
    pub(super) is_starting: bool,
    max_loads: usize,
    deadline: Duration,
}

struct ScheduledLoad<T> {
    number: u64,
    created: Instant,
    progress: watch::Sender<LoadProgress<T>>,
}

/// A load whose result a request may wait for.
pub(super) struct Joined<T> {
    pub(super) number: u64,
    pub(super) progress: watch::Receiver<LoadProgress<T>>,
}

/// The loads to start, and those to refuse, after a change of the schedule.
pub(super) struct LoadChanges<Q, T> {
    pub(super) start: Option<NewLoad<Q, T>>,
    pub(super) refused: Vec<NewLoad<Q, T>>,
}

impl<Q: Hash + Eq + Clone, T> Schedule<Q, T> {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            loads: HashMap::new(),
            queue: FairQueue::new(),
            running: BTreeMap::new(),
            time: LoadTime::default(),
            next_number: 0,
            is_starting: false,
            max_loads: settings.max_loads,
            deadline: settings.deadline,
        }
    }

    /// Joins the load of a key, if there is one that can still end in time. If the load waits, it takes part in
    /// the turns of this client too.
    pub(super) fn join(&mut self, key: &Q, client: Client, now: Instant) -> Option<Joined<T>> {
        let entry = self.loads.get(key)?;
        let is_waiting = entry.progress.borrow().is_waiting();
        let cannot_end = match is_waiting {
            true => self.is_late(entry.created, now),
            false => Self::is_stuck(self.deadline, entry.created, now),
        };
        if cannot_end {
            return None;
        }
        if is_waiting {
            self.queue.join(client, entry.number);
        }
        Some(entry.join())
    }

    /// Adds a load of a key, in place of one that cannot end in time. It starts at once if fewer than
    /// `max_loads` are running. Otherwise it waits, or is among the refused ones.
    pub(super) fn add(
        &mut self,
        key: Q,
        client: Client,
        runtime: Handle,
        now: Instant,
    ) -> (Joined<T>, LoadChanges<Q, T>) {
        let late = self.loads.remove(&key);
        let late = late.and_then(|late| self.queue.remove(late.number));
        let mut changes = LoadChanges { start: None, refused: Vec::from_iter(late) };

        while self.running.len() >= self.max_loads
            && let Some(oldest) = self.running.first_entry()
            && Self::is_stuck(self.deadline, *oldest.get(), now)
        {
            oldest.remove();
        }
        let is_running = self.running.len() < self.max_loads;
        let progress = if is_running { LoadProgress::Running } else { LoadProgress::Waiting };
        let (progress, number) = (watch::Sender::new(progress), self.next_number);
        self.next_number += 1;
        let entry = ScheduledLoad { number, created: now, progress: progress.clone() };
        let joined = entry.join();
        self.loads.insert(key.clone(), entry);

        let load = NewLoad { key, number, created: now, runtime, progress };
        if is_running {
            self.running.insert(number, now);
            changes.start = Some(load);
        } else {
            let max_len = self.time.max_waiting(self.deadline, self.max_loads).min(MAX_WAITING);
            if let Some(refused) = self.queue.push(client, number, load, max_len) {
                self.end(&refused.key, refused.number);
                changes.refused.push(refused);
            }
        }
        (joined, changes)
    }

    /// Counts the end of a load that was running, and how long it ran, if it came to its end.
    pub(super) fn ran(&mut self, number: u64, time: Option<Duration>) {
        let was_running = self.running.remove(&number).is_some();
        if let Some(time) = time.filter(|_| was_running) {
            self.time.record(time);
        }
    }

    /// Takes the next load of the queue, if fewer than `max_loads` are running. Those that can no longer
    /// end in time are refused.
    pub(super) fn next(&mut self, now: Instant) -> LoadChanges<Q, T> {
        let mut changes = LoadChanges { start: None, refused: Vec::new() };
        while self.running.len() < self.max_loads {
            let Some(load) = self.queue.pop() else { break };
            if !self.is_late(load.created, now) {
                self.running.insert(load.number, load.created);
                load.progress.send_replace(LoadProgress::Running);
                changes.start = Some(load);
                break;
            }
            self.end(&load.key, load.number);
            changes.refused.push(load);
        }
        changes
    }

    /// Removes a load that is waiting, unless another request waits for it. Returns the load that was
    /// removed.
    pub(super) fn leave(&mut self, joined: Joined<T>) -> Option<NewLoad<Q, T>> {
        let Joined { number, progress } = joined;
        let is_waiting = progress.borrow().is_waiting();
        drop(progress);
        if !is_waiting {
            return None;
        }
        let load = self.queue.remove_if(number, |load| load.progress.is_closed())?;
        self.end(&load.key, number);
        Some(load)
    }

    /// Removes the load of a key. Returns false if it is not the one with this number, because the key was
    /// forgotten or has another load.
    pub(super) fn end(&mut self, key: &Q, number: u64) -> bool {
        let is_current = self.loads.get(key).is_some_and(|load| load.number == number);
        if is_current {
            self.loads.remove(key);
        }
        is_current
    }

    /// Forgets that a key is being loaded.
    pub(super) fn forget(&mut self, key: &Q) {
        self.loads.remove(key);
    }

    /// Returns whether a load that was created at this time runs for so much longer than its deadline that
    /// its runtime no longer runs tasks. Another load then takes its place, and the result is not stored.
    fn is_stuck(deadline: Duration, created: Instant, now: Instant) -> bool {
        let longest = deadline.max(Duration::from_millis(50)).saturating_mul(4);
        now.saturating_duration_since(created) >= longest
    }

    /// Returns whether a load that was created at this time would not end by its deadline if it started
    /// now.
    fn is_late(&self, created: Instant, now: Instant) -> bool {
        saturating_add(now, self.time.expected()) > saturating_add(created, self.deadline)
    }
}

impl<T> ScheduledLoad<T> {
    fn join(&self) -> Joined<T> {
        Joined { number: self.number, progress: self.progress.subscribe() }
    }
}

/// The weight of a new time in the averages is 1/16.
const TIME_WEIGHT: u32 = 16;

/// The moving averages of the times of loads and of their deviation.
#[derive(Debug, Clone, Copy, Default)]
struct LoadTime {
    /// The mean and the mean deviation. `None` before the first load.
    measured: Option<(Duration, Duration)>,
}

impl LoadTime {
    fn record(&mut self, time: Duration) {
        let average = |old: Duration, new: Duration| {
            old.saturating_mul(TIME_WEIGHT - 1).saturating_add(new) / TIME_WEIGHT
        };
        self.measured = Some(match self.measured {
            None => (time, Duration::ZERO),
            Some((mean, deviation)) => {
                (average(mean, time), average(deviation, mean.abs_diff(time)))
            }
        });
    }

    /// Returns the time in which most loads end: the mean and twice the deviation. One slow load raises
    /// it little.
    fn expected(&self) -> Duration {
        let (mean, deviation) = self.measured.unwrap_or_default();
        mean.saturating_add(deviation.saturating_mul(2))
    }

    /// Returns the number of loads that can wait and still end within three quarters of `deadline`, if
    /// `at_once` loads run at once. The rest is for loads that take longer than others.
    fn max_waiting(&self, deadline: Duration, at_once: usize) -> usize {
        let Some((mean, _)) = self.measured else { return usize::MAX };
        let wait = (deadline / 4 * 3).saturating_sub(self.expected());
        let rounds = wait.as_secs_f64() / mean.as_secs_f64().max(1e-9);
        // A conversion from a float saturates.
        (rounds * at_once as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_slow_load_raises_the_time_a_little() {
        let mut time = LoadTime::default();
        assert_eq!((time.expected(), time.max_waiting(200 * MS, 32)), (Duration::ZERO, usize::MAX));
        (0..40).for_each(|_| time.record(20 * MS));
        assert_eq!((time.expected(), time.max_waiting(200 * MS, 32)), (20 * MS, 208));
        time.record(200 * MS);
        assert!(time.expected() < 60 * MS, "{time:?}");
        assert!(time.max_waiting(200 * MS, 32) > 70, "{time:?}");
        (0..100).for_each(|_| time.record(20 * MS));
        assert!(time.max_waiting(200 * MS, 32) > 200, "{time:?}");
    }

    #[test]
    fn a_database_that_hangs_leaves_no_time_to_wait() {
        let mut time = LoadTime::default();
        (0..100).for_each(|_| time.record(200 * MS));
        assert_eq!(time.max_waiting(200 * MS, 32), 0);
        time.record(Duration::MAX);
        assert_eq!(time.max_waiting(200 * MS, 32), 0);
        let mut instant = LoadTime::default();
        instant.record(Duration::ZERO);
        assert!(instant.max_waiting(200 * MS, 1) > 1_000_000);
    }
}

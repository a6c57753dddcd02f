//! The counts of this process, second by second, and its announcement.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{BuildHasher, RandomState},
};

use metrics::{Unit, describe_gauge, gauge};

use super::{Announcement, Increase};
use crate::Offenders;

/// The most policies in an announcement. It has the first ones by name.
const MAX_POLICIES: usize = 100;

/// The number of counts that are kept. With one a second, rates are of the last five seconds.
const KEPT: usize = 5;

/// The shortest time between two counts that are kept.
const MIN_PERIOD_MICROS: u64 = 900_000;

/// The most characters of a version.
const MAX_VERSION: usize = 64;

const STARTED: &str = "plimsoll_instance_start_seconds";
const SEEN: &str = "plimsoll_instance_seen_seconds";

/// The counts of this process, and its announcement.
#[derive(Debug)]
pub(crate) struct Announcer {
    /// A random number, which is another one after a restart. It is empty for a process that is no instance.
    id: String,
    version: String,
    started_micros: u64,
    offenders: Option<Offenders>,
    /// The last counts with their times in microseconds, the newest last.
    counts: VecDeque<(u64, BTreeMap<String, Increase>)>,
}

impl Announcer {
    /// Creates the announcer of a process that starts at this time of its clock.
    pub(crate) fn new(version: String, now_micros: u64) -> Self {
        let id = format!("{:016x}", RandomState::new().hash_one(()));
        let counts = VecDeque::from([(now_micros, BTreeMap::new())]);
        let version = version.chars().filter(|it| !it.is_control()).take(MAX_VERSION).collect();
        Self { id, version, started_micros: now_micros, offenders: None, counts }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Makes the process an observer of the fleet, which is no instance.
    pub(crate) fn hide(&mut self) {
        self.id.clear();
    }

    /// Announces the counts of these offenders from now on.
    pub(crate) fn publish(&mut self, offenders: Offenders) {
        self.offenders = Some(offenders);
    }

    /// Returns the announcement of this time, and keeps its counts unless it follows another one at once.
    pub(crate) fn announce(&mut self, now_micros: u64) -> Announcement {
        let totals = self.offenders.as_ref().map(Offenders::totals).unwrap_or_default();
        let (before_micros, before) = match self.counts.front() {
            Some((micros, counts)) => (*micros, Some(counts)),
            None => (self.started_micros, None),
        };
        let policies = totals.into_iter().take(MAX_POLICIES).map(|(policy, now)| {
            let before = before.and_then(|counts| counts.get(&policy));
            let increase = now.since(before.copied().unwrap_or_default());
            (policy, increase)
        });
        let announcement = Announcement {
            version: self.version.clone(),
            uptime_millis: now_micros.saturating_sub(self.started_micros) / 1_000,
            period_millis: now_micros.saturating_sub(before_micros) / 1_000,
            policies: policies.collect(),
        };
        let kept_micros = self.counts.back().map_or(self.started_micros, |(micros, _)| *micros);
        if now_micros.saturating_sub(kept_micros) >= MIN_PERIOD_MICROS {
            if self.counts.len() >= KEPT {
                self.counts.pop_front();
            }
            self.counts.push_back((now_micros, announcement.policies.clone()));
        }
        announcement
    }

    /// Sets the metrics of an announcement that was made at this time of the store.
    pub(crate) fn announced(&self, now_micros: u64, announcement: &Announcement) {
        let seen = now_micros as f64 / 1e6;
        let labels = [("id", self.id.clone()), ("version", self.version.clone())];
        gauge!(STARTED, &labels).set(seen - announcement.uptime_millis as f64 / 1e3);
        gauge!(SEEN, &labels).set(seen);
    }

    /// Gives the recorder the descriptions of the metrics.
    pub(crate) fn describe() {
        describe_gauge!(STARTED, Unit::Seconds, "The Unix time at which the instance started.");
        describe_gauge!(SEEN, Unit::Seconds, "The Unix time of the last announcement.");
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::{Limiter, Policy};

    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn rates_are_of_the_last_five_seconds_and_never_negative() {
        let offenders = Offenders::new(10);
        let limiter = Limiter::in_memory();
        let policy = Policy::new("api", "12/d").unwrap();
        let spend = |times: usize| {
            for _ in 0..times {
                offenders.record(&limiter.check_now(policy.charge("alice", 2)).unwrap());
            }
        };
        let mut announcer = Announcer::new("1".into(), 100 * SECOND);
        assert_eq!(announcer.announce(100 * SECOND).policies, BTreeMap::new());
        announcer.publish(offenders.clone());
        spend(3);
        let first = announcer.announce(102 * SECOND);
        let api = Increase { admitted: 6, denied: 0, admitted_lately: 6, denied_lately: 0 };
        assert_eq!(first.policies["api"], api);
        assert_eq!(first.units(&api).admitted_per_second, 3.0);
        spend(4);
        let second = announcer.announce(104 * SECOND);
        let api = Increase { admitted: 12, denied: 2, admitted_lately: 12, denied_lately: 2 };
        assert_eq!((second.policies["api"], second.period_millis), (api, 4_000));
        // Units before the last five announcements are no part of the rate.
        let last = (105..110).map(|second| announcer.announce(second * SECOND)).last();
        let quiet = Increase { admitted_lately: 0, denied_lately: 0, ..api };
        assert_eq!(last.unwrap().policies["api"], quiet);
        // Other counts begin at 0, as after a restart.
        announcer.publish(Offenders::new(10));
        assert_eq!(announcer.announce(111 * SECOND).policies, BTreeMap::new());
    }

    #[test]
    fn an_announcement_is_bounded() {
        let offenders = Offenders::new(10);
        let limiter = Limiter::in_memory();
        for number in 0..2 * MAX_POLICIES {
            let policy = Policy::new(&format!("policy-{number:0>57}"), "1/s").unwrap();
            offenders.record(&limiter.check_now(policy.charge("alice", 1)).unwrap());
        }
        let mut announcer = Announcer::new("1".into(), 0);
        announcer.publish(offenders);
        let announcement = announcer.announce(SECOND);
        assert_eq!(announcement.policies.len(), MAX_POLICIES);
        let text = serde_json::to_string(&announcement).unwrap();
        assert!(text.len() < 16_000, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<Announcement>(&text).unwrap(), announcement);
    }
}

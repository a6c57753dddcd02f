//! The clocks of the store's nodes, compared with the clocks of this machine.
//!
//! A node reads its clock between a request and its reply. So the time between two readings is known on the clock of the
//! node exactly, and on the clock of this process within both round trips. This gives the least and the largest drift of
//! the node: the difference of the two rates. No reply is too slow for that, it only makes the range wider.
//!
//! A *span* of at least 20 s is one such comparison. Its range holds the true drift, unless a clock was set meanwhile. A
//! clock that is set, or another server that takes over, is in one span. So only a drift that the last three spans
//! prove is believed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::UNIX_EPOCH,
};

use super::guarded::Guards;
use crate::{
    clock::{Clock, Timestamp, micros, wall_time},
    policy::Charge,
    store::NodeId,
    sync::Mutex,
    telemetry,
};

/// The largest drift with which this process leases, in parts per million. It is half of the drift that leases allow.
const MAX_DRIFT: i64 = 500;
/// The largest drift that causes no warning, in parts per million.
const MAX_SILENT_DRIFT: i64 = 100;
/// The widest range that ends a span, in parts per million.
const PRECISION: f64 = 50.0;
/// The largest offset between the clocks of the store and of this machine that causes no warning.
const MAX_SILENT_OFFSET_SECONDS: f64 = 1.0;
/// The shortest time between two warnings of the same, in microseconds.
const WARNING_INTERVAL_MICROS: u64 = 3_600_000_000;
/// The shortest time between two samples, in microseconds.
const INTERVAL_MICROS: u64 = 1_000_000;
/// The shortest time of a span, in microseconds.
const MIN_SPAN_MICROS: f64 = 20e6;
/// The time in microseconds after which a node is forgotten that has not replied.
const EXPIRY_MICROS: u64 = 600_000_000;

/// The clocks of the store's nodes, compared with the clock of the leases and the wall clock of this machine.
#[derive(Debug)]
pub(super) struct Clocks {
    clock: Arc<dyn Clock>,
    /// No reply to an earlier request is compared.
    next_at: AtomicU64,
    /// The largest drift of a node in parts per million.
    drift: AtomicI64,
    compared: Mutex<Compared>,
}

#[derive(Debug, Default)]
struct Compared {
    /// The nodes that have replied lately. There is one sample in a second, so their number is bounded.
    nodes: Vec<NodeClock>,
    /// The time of the last warning of each finding: offset, drift, and a drift too large for leases.
    warned_at: [Option<u64>; 3],
}

/// The drift of the clock of a node.
#[derive(Debug)]
struct NodeClock {
    id: NodeId,
    /// The beginning of the current span.
    first: Sample,
    latest: Sample,
    /// The ranges of the last spans.
    spans: [Range; 3],
}

/// The time of a node, and the times of this process before the request and after the reply, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Sample {
    asked_at: u64,
    answered_at: u64,
    time: u64,
}

/// The least and the largest possible drift, in parts per million. A clock that is fast has a positive drift.
#[derive(Debug, Clone, Copy)]
struct Range(f64, f64);

impl Guards {
    /// Compares the clocks with the time in the store's reply to a charge, at most once a second. `asked_at` is no later
    /// than the request.
    pub(super) fn compare_clocks(&self, charge: &Charge<'_>, asked_at: u64, time: Timestamp) {
        let clocks = &self.clocks;
        if asked_at < clocks.next_at.load(Relaxed) {
            return;
        }
        let sample = Sample { asked_at, answered_at: clocks.now(), time: time.as_micros() };
        clocks.next_at.store(sample.answered_at.saturating_add(INTERVAL_MICROS), Relaxed);
        clocks.add(self.store.node(charge), sample);
    }
}

impl Clocks {
    /// Creates the comparison with the clock of the leases.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (next_at, drift) = Default::default();
        Self { clock, next_at, drift, compared: Mutex::default() }
    }

    /// Returns the time of the clock of the leases, in microseconds.
    pub(super) fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// Returns the largest drift of a node in parts per million that is certain. It is positive if the node's clock is
    /// faster than the clock of this process.
    pub(super) fn drift(&self) -> i64 {
        self.drift.load(Relaxed)
    }

    /// Returns whether the rates of the clocks are close enough for leases.
    pub(super) fn allow_leases(&self) -> bool {
        self.drift().abs() <= MAX_DRIFT
    }

    /// Adds a sample of a node, and reports offset and drift. An event reports each finding once an hour.
    fn add(&self, id: NodeId, sample: Sample) {
        let drift = self.compared.lock().add(id, sample);
        self.drift.store(drift, Relaxed);
        let offset = sample.offset_seconds();
        telemetry::clocks_compared(offset, drift);
        let is_off = offset.abs() > MAX_SILENT_OFFSET_SECONDS;
        let findings = [is_off, drift.abs() > MAX_SILENT_DRIFT, !self.allow_leases()];
        if self.compared.lock().is_due(findings, sample.answered_at) {
            telemetry::clocks_differ(offset, drift, self.allow_leases());
        }
    }
}

impl Compared {
    /// Adds a sample. Returns the largest drift of a node that is certain.
    fn add(&mut self, id: NodeId, sample: Sample) -> i64 {
        let since = sample.answered_at.saturating_sub(EXPIRY_MICROS);
        self.nodes.retain(|node| node.latest.answered_at > since);
        match self.nodes.iter_mut().find(|node| node.id == id) {
            Some(node) => node.add(sample),
            None => self.nodes.push(NodeClock {
                id,
                first: sample,
                latest: sample,
                spans: [Range(f64::NEG_INFINITY, f64::INFINITY); 3],
            }),
        }
        self.nodes.iter().map(NodeClock::drift).max_by_key(|drift| drift.abs()).unwrap_or(0)
    }

    /// Returns whether a warning of these findings is due.
    fn is_due(&mut self, findings: [bool; 3], now: u64) -> bool {
        let mut is_any_due = false;
        for (warned_at, is_found) in self.warned_at.iter_mut().zip(findings) {
            let is_recent =
                warned_at.is_some_and(|at| now.saturating_sub(at) < WARNING_INTERVAL_MICROS);
            if is_found && !is_recent {
                *warned_at = Some(now);
                is_any_due = true;
            }
        }
        is_any_due
    }
}

impl NodeClock {
    /// Adds a sample. It ends the span if the range is narrow, or if it shows that the clock is not good enough for leases.
    fn add(&mut self, sample: Sample) {
        self.latest = sample;
        let span = sample.answered_at.saturating_sub(self.first.asked_at) as f64;
        let range = Range::between(self.first, sample);
        let is_certain = range.certain().abs() > MAX_DRIFT || range.1 - range.0 <= PRECISION;
        if span >= MIN_SPAN_MICROS && is_certain {
            self.spans.rotate_right(1);
            self.spans[0] = range;
            self.first = sample;
        } else if sample.round_trip() as f64 + span * PRECISION / 1e6
            < self.first.round_trip() as f64
        {
            // A span that begins now is narrow earlier.
            self.first = sample;
        }
    }

    /// Returns the drift that each of the last spans proves.
    fn drift(&self) -> i64 {
        let [one, two, three] = self.spans;
        Range(one.0.min(two.0).min(three.0), one.1.max(two.1).max(three.1)).certain()
    }
}

impl Sample {
    fn round_trip(self) -> u64 {
        self.answered_at.saturating_sub(self.asked_at)
    }

    /// Returns by how much the clock of the node is ahead of the wall clock of this machine, or behind it. The clocks
    /// agree if the node's time is between the request and the reply. No limit depends on the wall clock.
    fn offset_seconds(self) -> f64 {
        let answered = micros(wall_time().duration_since(UNIX_EPOCH).unwrap_or_default());
        let asked = answered.saturating_sub(self.round_trip());
        let ahead = self.time.saturating_sub(answered);
        let behind = asked.saturating_sub(self.time);
        (ahead as f64 - behind as f64) / 1e6
    }
}

impl Range {
    /// Returns the range of the drift between two samples.
    fn between(first: Sample, last: Sample) -> Self {
        let elapsed = last.time as f64 - first.time as f64;
        let shortest = last.asked_at.saturating_sub(first.answered_at).max(1) as f64;
        let longest = last.answered_at.saturating_sub(first.asked_at).max(1) as f64;
        let [one, other] = [shortest, longest].map(|local| (elapsed - local) / local * 1e6);
        Self(one.min(other), one.max(other))
    }

    /// Returns the smallest drift of the range, rounded towards 0.
    fn certain(self) -> i64 {
        if self.0 > 0.0 { self.0 as i64 } else { self.1.min(0.0) as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{self, Random};

    const SECOND: u64 = 1_000_000;
    const DAY: i64 = 86_400_000_000;

    /// A node whose clock drifts, and the time of this process.
    struct World {
        compared: Compared,
        now: u64,
        time: f64,
        ppm: i64,
    }

    impl World {
        fn new(ppm: i64) -> Self {
            Self { compared: Compared::default(), now: 7 * SECOND, time: 1.7e15, ppm }
        }

        fn pass(&mut self, micros: u64) {
            self.now += micros;
            self.time += micros as f64 * (1.0 + self.ppm as f64 / 1e6);
        }

        fn set(&mut self, by: i64) {
            self.time += by as f64;
        }

        /// Sends a request, which needs these times on its way there and back, and lets the rest of a second pass.
        fn ask(&mut self, there: u64, back: u64) -> i64 {
            let asked_at = self.now;
            self.pass(there);
            let time = self.time as u64;
            self.pass(back);
            let drift =
                self.compared.add(NodeId(1), Sample { asked_at, answered_at: self.now, time });
            self.pass(SECOND.saturating_sub(there + back));
            drift
        }

        fn run(&mut self, seconds: u64) -> i64 {
            (0..seconds).map(|_| self.ask(300, 200)).last().expect("a second")
        }
    }

    #[test]
    fn a_drift_is_measured_within_two_minutes() {
        for ppm in [-20_000, -1_000, -110, -60, 60, 110, 560, 1_000, 20_000] {
            let mut world = World::new(ppm);
            assert_eq!(world.run(59), 0, "{ppm}: too early");
            let drift = world.run(61);
            assert!((ppm.abs() - 52..=ppm.abs()).contains(&drift.abs()), "{ppm}: {drift}");
            assert_eq!(drift.signum(), ppm.signum());
            world.ppm = 0;
            assert_eq!(world.run(42), 0, "{ppm}: the clock is well again");
        }
    }

    /// Delays of all kinds, also those that grow like a drift.
    #[test]
    fn a_slow_reply_is_no_drift() {
        for history in seed::histories("drifts", 200) {
            let random = &mut Random(history.seed);
            let ppm = random.one(&[0, 0, 90, 700, -90, -700]);
            let longest = random.one(&[100, 5_000, 300_000, 5 * SECOND]);
            let growth = random.one(&[0, 0, 100, 1_000]);
            let mut world = World::new(ppm);
            for second in 0..3_000 {
                let late = growth * second * random.below(2);
                let (there, back) = (random.below(longest), random.below(longest));
                let drift = match random.below(2) {
                    0 => world.ask(there, back + late),
                    _ => world.ask(there + late, back),
                };
                let is_proven = drift == 0 || drift.signum() == ppm.signum();
                assert!(is_proven && drift.abs() <= ppm.abs(), "{:#x}: {drift}", history.seed);
            }
        }
    }

    /// A clock is set, or another server takes over, up to once a minute.
    #[test]
    fn a_clock_that_is_set_does_not_drift() {
        for history in seed::histories("steps", 200) {
            let random = &mut Random(history.seed);
            let largest = random.one(&[20_000, SECOND as i64, DAY]);
            let mut world = World::new(0);
            for _ in 0..20 {
                world.set(random.below(2 * largest as u64) as i64 - largest);
                for _ in 0..60 + random.below(60) {
                    let drift = world.ask(random.below(300), random.below(300));
                    assert_eq!(drift, 0, "{:#x}", history.seed);
                }
            }
        }
    }

    #[test]
    fn a_far_node_takes_longer() {
        let mut world = World::new(1_000);
        let drifts = (0..7_200).map(|_| world.ask(70_000, 80_000));
        let first = drifts.take_while(|drift| drift.abs() <= MAX_DRIFT).count();
        assert!((600..1_000).contains(&first), "{first} s");
    }

    #[test]
    fn nodes_drift_apart_and_are_forgotten() {
        let mut world = World::new(900);
        world.run(70);
        let other = |world: &mut World, seconds: u64| {
            let drifts = (0..seconds).map(|_| {
                world.now += SECOND;
                let (asked_at, answered_at) = (world.now - 400, world.now);
                world
                    .compared
                    .add(NodeId(2), Sample { asked_at, answered_at, time: world.now + 55 })
            });
            drifts.last().expect("a second")
        };
        assert!(other(&mut world, 500) > 800, "the first node is known");
        assert_eq!(other(&mut world, 101), 0, "it has not replied for ten minutes");
        assert_eq!(world.compared.nodes.len(), 1);
    }
}

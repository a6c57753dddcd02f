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
    time::{Duration, UNIX_EPOCH},
};

use super::guarded::Guards;
use crate::{
    clock::{Clock, Timestamp, micros, wall_time},
    policy::Charge,
    store::NodeId,
    sync::Mutex,
    telemetry,
};

/// The drift that leases allow, in parts per million: 1000 : 1001.
const ALLOWED_DRIFT: i64 = 1_000;
/// The largest drift in parts per million with which this process leases.
const MAX_DRIFT: i64 = ALLOWED_DRIFT / 2;
/// The largest drift in parts per million that causes no warning.
const MAX_SILENT_DRIFT: i64 = ALLOWED_DRIFT / 10;
/// The widest range of a span in parts per million. A narrower one ends the span.
const PRECISION: u64 = 50;

/// The largest offset between the clocks of the store and of this machine that causes no warning.
const MAX_SILENT_OFFSET: Duration = Duration::from_secs(1);
/// The shortest time between two warnings, in microseconds.
const WARNING_INTERVAL_MICROS: u64 = 3_600_000_000;

/// The shortest time between two comparisons, in microseconds.
const INTERVAL_MICROS: u64 = 1_000_000;
/// The shortest time of a span, in microseconds.
const MIN_SPAN_MICROS: u64 = 20_000_000;
/// The time in microseconds after which a node is forgotten that has not replied.
const EXPIRY_MICROS: u64 = 600_000_000;

/// The clocks of the store's nodes, compared with the clock of the leases and the wall clock of this machine.
#[derive(Debug)]
pub(super) struct Clocks {
    clock: Arc<dyn Clock>,
    /// No reply to an earlier request is compared.
    next_at: AtomicU64,
    /// The largest drift of a node.
    drift: AtomicI64,
    nodes: Mutex<Nodes>,
    offset_warning: Warning,
    drift_warning: Warning,
}

/// The drifts of the nodes that have replied lately. There is one new sample each second, so their number is bounded.
#[derive(Debug, Default)]
struct Nodes(Vec<Node>);

/// The drift of the clock of a node.
#[derive(Debug)]
struct Node {
    id: NodeId,
    /// The beginning of the current span.
    first: Sample,
    /// The time of the last sample.
    sampled_at: u64,
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
struct Range {
    least: i64,
    most: i64,
}

/// The time of the last warning, or 0.
#[derive(Debug, Default)]
struct Warning(AtomicU64);

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
        clocks.report_offset(sample);
        let drift = clocks.nodes.lock().add(self.store.node(charge), sample);
        clocks.report_drift(drift, sample.answered_at);
    }
}

impl Clocks {
    /// Creates the comparison with the clock of the leases.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            next_at: AtomicU64::new(0),
            drift: AtomicI64::new(0),
            nodes: Mutex::default(),
            offset_warning: Warning::default(),
            drift_warning: Warning::default(),
        }
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

    /// Reports by how much the clock of the node is ahead of the wall clock of this machine, or behind it. The clocks
    /// agree if the node's time is between the request and the reply. No limit depends on the wall clock.
    fn report_offset(&self, sample: Sample) {
        let answered = micros(wall_time().duration_since(UNIX_EPOCH).unwrap_or_default());
        let asked = answered.saturating_sub(sample.round_trip());
        let ahead = Duration::from_micros(sample.time.saturating_sub(answered));
        let behind = Duration::from_micros(asked.saturating_sub(sample.time));
        let offset = ahead.as_secs_f64() - behind.as_secs_f64();
        telemetry::clocks_compared(offset);
        if ahead.max(behind) > MAX_SILENT_OFFSET && self.offset_warning.is_due(sample.answered_at) {
            telemetry::clock_is_off(offset);
        }
    }

    /// Reports the drift, as an event once an hour and when the leases stop.
    fn report_drift(&self, drift: i64, now: u64) {
        let leased = self.allow_leases();
        self.drift.store(drift, Relaxed);
        telemetry::drift_measured(drift);
        let leases = self.allow_leases();
        let has_stopped = leased && !leases;
        if drift.abs() > MAX_SILENT_DRIFT && (self.drift_warning.is_due(now) || has_stopped) {
            telemetry::clock_drifts(drift, leases);
        }
    }
}

impl Nodes {
    /// Adds a sample. Returns the largest drift of a node.
    fn add(&mut self, id: NodeId, sample: Sample) -> i64 {
        let now = sample.answered_at;
        self.0.retain(|node| now.saturating_sub(node.sampled_at) < EXPIRY_MICROS);
        match self.0.iter_mut().find(|node| node.id == id) {
            Some(node) => node.add(sample),
            None => self.0.push(Node::new(id, sample)),
        }
        self.0.iter().map(Node::drift).max_by_key(|drift| drift.abs()).unwrap_or(0)
    }
}

impl Node {
    fn new(id: NodeId, first: Sample) -> Self {
        Self { id, first, sampled_at: first.answered_at, spans: [Range::UNKNOWN; 3] }
    }

    /// Adds a sample. It ends the span if the range is narrow, or if it shows that the clock is not good enough for leases.
    fn add(&mut self, sample: Sample) {
        self.sampled_at = sample.answered_at;
        let span = sample.answered_at.saturating_sub(self.first.asked_at);
        let range = Range::between(self.first, sample);
        let is_narrow = range.most - range.least <= PRECISION as i64;
        if span >= MIN_SPAN_MICROS && (is_narrow || range.certain().abs() > MAX_DRIFT) {
            self.spans.rotate_right(1);
            self.spans[0] = range;
            self.first = sample;
        } else if sample.round_trip() + span * PRECISION / 1_000_000 < self.first.round_trip() {
            // A span that begins now is narrow earlier.
            self.first = sample;
        }
    }

    /// Returns the drift that all of the last spans prove.
    fn drift(&self) -> i64 {
        let least = self.spans.iter().map(|range| range.least).min();
        let most = self.spans.iter().map(|range| range.most).max();
        Range { least: least.unwrap_or(0), most: most.unwrap_or(0) }.certain()
    }
}

impl Sample {
    fn round_trip(&self) -> u64 {
        self.answered_at.saturating_sub(self.asked_at)
    }
}

impl Range {
    const UNKNOWN: Self = Self { least: i64::MIN, most: i64::MAX };

    /// Returns the range of the drift between two samples.
    fn between(first: Sample, last: Sample) -> Self {
        let elapsed = i128::from(last.time) - i128::from(first.time);
        let ends = [
            last.asked_at.saturating_sub(first.answered_at),
            last.answered_at.saturating_sub(first.asked_at),
        ];
        let drifts = ends.map(|local| {
            let local = i128::from(local.max(1));
            ((elapsed - local) * 1_000_000).div_euclid(local)
        });
        let [one, other] = drifts.map(|drift| drift.clamp(-1_000_000_000, 1_000_000_000) as i64);
        // Rounded down.
        Self { least: one.min(other), most: one.max(other) + 1 }
    }

    /// Returns the smallest drift of the range, which is certain.
    fn certain(self) -> i64 {
        if self.least > 0 { self.least } else { self.most.min(0) }
    }
}

impl Warning {
    /// Returns whether a warning is due, and then begins to wait for the next one.
    fn is_due(&self, now: u64) -> bool {
        let last = self.0.load(Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= WARNING_INTERVAL_MICROS;
        if is_due {
            self.0.store(now, Relaxed);
        }
        is_due
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
        nodes: Nodes,
        now: u64,
        time: f64,
        ppm: i64,
    }

    impl World {
        fn new(ppm: i64) -> Self {
            Self { nodes: Nodes::default(), now: 7 * SECOND, time: 1.7e15, ppm }
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
            let drift = self.nodes.add(NodeId(1), Sample { asked_at, answered_at: self.now, time });
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
                world.nodes.add(NodeId(2), Sample { asked_at, answered_at, time: world.now + 55 })
            });
            drifts.last().expect("a second")
        };
        assert!(other(&mut world, 500) > 800, "the first node is known");
        assert_eq!(other(&mut world, 101), 0, "it has not replied for ten minutes");
        assert_eq!(world.nodes.0.len(), 1);
    }
}

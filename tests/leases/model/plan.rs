//! The plan of a history: quotas, processes, workloads and faults.

use crate::quota::Quota;

/// A rule of the lease layer that a mutant breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The store counts by the quota itself: a log over the window alone, a whole burst.
    CountsWithoutLease,
    /// A lease under a windowed algorithm outlives its period.
    OutlivesPeriod,
    /// The clock is read before the units are taken.
    ReadsClockFirst,
    /// Units are used although the answer that grants them was lost.
    UsesLostAnswer,
    /// The clock of one process runs at 0.8 of the rate of the store's.
    SlowClock,
}

/// The checks of one process over time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    /// The mean time between two checks in microseconds, while there is demand.
    pub(super) mean_gap: f64,
    /// The time in microseconds before the first check, and then the times for which there is demand,
    /// and none, and so on.
    pub(super) delay: u64,
    pub(super) active: u64,
    pub(super) idle: u64,
}

/// One process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessPlan {
    /// The rate of its clock less 1, in units of 10^-9.
    pub(super) skew_ppb: i64,
    pub(super) leases: bool,
    pub(super) workload: Workload,
    pub(super) suspended: Suspended,
    pub(super) polling: Polling,
}

/// The times at which a process polls the tasks of its renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polling {
    /// At once.
    AtOnce,
    /// Only while a check waits: its checks do not yield, and something else blocks the thread in between.
    WhileWaiting,
    /// Up to two leases late: they are on another runtime, which is not always driven.
    Late,
}

/// Tasks that are suspended between two steps of a check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspended {
    pub(super) per_mille: u64,
    /// The shortest and the longest pause, in thousandths of a lease.
    pub(super) pause: (u64, u64),
}

/// The faults, each with its number of events in 1000.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// A request or its answer is lost.
    pub(super) lost: u64,
    /// A request or its answer is delayed by up to two leases.
    pub(super) delayed: u64,
    /// The caller of a check refunds a part of it.
    pub(super) refunded: u64,
    /// A check that took units from the stock is denied by another charge.
    pub(super) undo: u64,
    /// A process is killed, or frozen for up to three leases, instead of a check.
    pub(super) crashed: u64,
    pub(super) frozen: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) quota: Quota,
    /// The quota that replaces the first one, and when. Each process changes at a time of its own,
    /// within one lease.
    pub(super) change: Option<(Quota, u64)>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) processes: Vec<ProcessPlan>,
    /// The number of instances that each process knows.
    pub(super) instances: u32,
    pub(super) max_cost: u64,
    /// The shortest and the longest way to the store or back, in microseconds.
    pub(super) way: (u64, u64),
    pub(super) faults: Faults,
    /// True if the uses are recorded.
    pub(super) is_judged: bool,
    pub(super) mutant: Option<Mutant>,
}

//! The events of a history, in the order of their times.

use std::cmp::Ordering;

use super::{
    super::{grants::Taken, stock::RenewalRequest},
    shared::Reply,
};
use crate::{decision::Mark, quota::Quota};

/// A call to the store.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Lease(RenewalRequest),
    Check {
        cost: u64,
        sent_at: u64,
    },
    /// `of` is the use whose caller refunds it.
    Refund {
        units: u64,
        mark: Mark,
        of: Option<usize>,
    },
}

/// A step of a process, of a call or of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Arrives,
    /// The check reads the clock after it took units.
    Reads {
        taken: Taken,
        waits: u32,
    },
    /// The check of a mutant takes units after it read the clock.
    TakesAfter {
        read: u64,
        cost: u64,
        waits: u32,
    },
    /// The check returns its units, because another charge denied it.
    PutsBack(Taken),
    /// The process polls the task of a renewal for the first time.
    Polls {
        ask: RenewalRequest,
        quota: Quota,
    },
    /// The check with this number stops waiting for a renewal that has not ended.
    StopsWaiting(u64),
    /// The call arrives at the store. The answer arrives after this time, if it is not lost.
    AtStore {
        call: Call,
        quota: Quota,
        answer_after: Option<u64>,
    },
    Answered {
        call: Call,
        quota: Quota,
        reply: Reply,
    },
    TimedOut(Call),
    Refunds(usize),
    Changes(Quota),
    Ticks,
}

/// A step of a process. The earliest event is the smallest. At equal times, the event that was pushed first is.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) at: u64,
    /// The number of the event, in the order in which events are pushed.
    pub(super) number: u64,
    pub(super) process: usize,
    pub(super) life: u32,
    pub(super) step: Step,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

//! The hard cases that a history reaches.

use std::fmt;

macro_rules! cases {
    ($($name:ident: $text:literal,)+) => {
        /// A case that the histories must reach.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Case {
            $($name,)+
        }

        const TEXTS: &[&str] = &[$($text),+];
    };
}

cases! {
    UsedAtEnd: "a unit was used in the last 5% of its lease",
    UsedAtEdge: "a unit was used in the last 1% of its period, by a lease that the period cut short",
    CutShort: "the end of a period cut a lease short",
    TakenTooLate: "units were taken, and their lease had ended when the clock was read",
    LostGrant: "an answer that granted units was lost",
    LostRequest: "a request for units was lost",
    LateGrant: "an answer that granted units arrived in the last quarter of the lease",
    DeadGrant: "an answer that granted units arrived after the lease",
    Shared: "several checks waited for one renewal",
    SentLate: "a renewal was sent in the second half of a lease after its start",
    NeverSent: "a renewal was replaced before it was sent",
    StoppedWaiting: "a check asked the store, because a renewal had not ended in time",
    BackToStock: "a caller's refund went into an open grant",
    BackToStore: "a caller's refund of leased units went to the store",
    Undone: "units went back into the stock because another charge denied the check",
    UndoneTooLate: "units of a denied check were free after their lease",
    Refunded: "unused units were refunded",
    CrashedWithStock: "a process with units was killed",
    FrozenPastEnd: "a process with units was frozen for longer than their lease",
    ChangedWithStock: "the quota changed in a process with units",
    Direct: "a check was decided by the store while another process held units",
    Denied: "a request for units was denied",
    FastClock: "the clock of a process with units ran faster than 1.0008",
    SlowClock: "the clock of a process with units ran slower than 0.9992",
    Full: "a window held as many units as the bound allows",
}

/// The number of times that each case was reached.
#[derive(Debug, Clone)]
pub(super) struct Cases([u64; TEXTS.len()]);

impl Default for Cases {
    fn default() -> Self {
        Self([0; TEXTS.len()])
    }
}

impl Cases {
    pub(super) fn count(&mut self, case: Case) {
        self.0[case as usize] += 1;
    }

    pub(super) fn count_if(&mut self, condition: bool, case: Case) {
        self.0[case as usize] += u64::from(condition);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// Returns the cases that were reached less than `least` times.
    pub(super) fn missing(&self, least: u64) -> Vec<&'static str> {
        let counted = TEXTS.iter().zip(self.0);
        counted.filter(|(_, count)| *count < least).map(|(text, _)| *text).collect()
    }
}

impl fmt::Display for Cases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TEXTS.iter().zip(self.0).try_for_each(|(text, count)| writeln!(f, "{count:>12}  {text}"))
    }
}

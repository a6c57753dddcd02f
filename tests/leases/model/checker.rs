//! The judge of a history. It knows when units were used, and nothing of leases, stores and
//! algorithms.

use plimsoll_testing::most_in_any_window;

/// Units that a check of a process used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    /// The time of use in microseconds, by the clock of the store.
    pub(super) time: u64,
    /// The units, less those that have been refunded.
    pub(super) units: u64,
}

/// A promise about some of the uses: at most `units` in any trailing `window`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) units: u64,
    pub(super) window: u64,
    /// The promise is about the units that are used from this time on.
    pub(super) from: u64,
}

/// A trailing window with more units than a [`Bound`] allows.
#[derive(Debug)]
#[expect(dead_code, reason = "printed when a test fails")]
pub(super) struct Violation {
    bound: Bound,
    units: u64,
}

/// Returns the units of the fullest trailing window.
pub(super) fn fullest_window(uses: &[Use], bound: Bound) -> u64 {
    let counted = uses.iter().filter(|it| it.time >= bound.from);
    let counted: Vec<_> = counted.map(|it| (it.time, it.units)).collect();
    most_in_any_window(&counted, bound.window) as u64
}

/// Returns the units of the fullest window of the first bound.
pub(super) fn judge(uses: &[Use], bounds: &[Bound]) -> Result<u64, Violation> {
    let mut first = None;
    for bound in bounds {
        let units = fullest_window(uses, *bound);
        if units > bound.units {
            return Err(Violation { bound: *bound, units });
        }
        first.get_or_insert(units);
    }
    Ok(first.unwrap_or(0))
}

#[test]
fn the_judge_finds_the_fullest_window() {
    let uses = [(0, 3), (9, 2), (10, 4), (19, 1), (25, 1)].map(|(time, units)| Use { time, units });
    let bound = |units, from| Bound { units, window: 10, from };
    assert_eq!(fullest_window(&uses, bound(0, 0)), 6);
    assert_eq!(fullest_window(&uses, bound(0, 19)), 2);
    assert_eq!(judge(&uses, &[bound(6, 0), bound(2, 19)]).unwrap(), 6);
    assert!(judge(&uses, &[bound(6, 0), bound(1, 19)]).is_err());
}

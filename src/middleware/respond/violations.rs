//! The outcomes that deny a check.

use crate::decision::{Denied, Outcome, Verdict};

/// Returns the outcomes that denied the check.
pub(super) fn violations<'a>(denied: &'a Denied<'_>) -> impl Iterator<Item = Outcome<'a>> {
    denied
        .outcomes()
        .iter()
        .filter(|outcome| !outcome.charge().is_shadow() && outcome.verdict() != Verdict::Passed)
}

//! The outcomes that deny a check.

use crate::decision::{Denied, Outcome, OutcomeKind};

/// Returns the outcomes that denied the check.
pub(super) fn violations<'a>(denied: &'a Denied<'_>) -> impl Iterator<Item = Outcome<'a>> {
    denied.outcomes().iter().filter(|outcome| outcome.kind() == OutcomeKind::Denied)
}

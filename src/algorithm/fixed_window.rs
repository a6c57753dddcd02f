//! Fixed window: one counter that starts again at each multiple of the window.
//!
//! Admits at most `limit` units from one multiple to the next, so at most `2 * limit` in any
//! window. [`periods`](super::periods) says what a change of the quota does.

/// Counters whose units leave at the end of their period.
pub(crate) type FixedWindow = super::periods::Periods<0>;

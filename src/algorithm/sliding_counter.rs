//! Sliding counter: two fixed windows, the older weighted by its overlap with the trailing window.
//!
//! Admits at most `2 * limit - 1` units in any window, and near `limit` on steady traffic. The
//! estimate is `ceil(previous * (end - now) / window) + current`. It is rounded up, so it never
//! admits what the exact estimate would deny. [`periods`](super::periods) says what a change of the quota does.

/// Counters whose units fade out over the period after their own.
pub(crate) type SlidingCounter = super::periods::Periods<1>;

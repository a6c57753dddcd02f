//! Sliding buckets: a sliding log whose times are rounded up to the next of `n` edges a window.
//!
//! Admits at most `limit` units in any window, and keeps at most `n + 1` records. A unit comes back
//! up to `window / n` late.
//!
//! # Changing a quota
//!
//! - A new *limit* applies at once to all units that still count.
//! - A new number of buckets applies to the charges after the bucket that is open.
//! - After a change of the *window* each charge counts for its own window, or for the window of a later
//!   charge if that is shorter, from the end of its bucket on. See [`ring`](super::ring).
//!   - If the window grows, the open bucket ends at the key's last charge.
//!   - If the window shrinks, the open bucket ends at its end under the old quota, or at the end of the
//!     new bucket that holds the key's last charge, whichever is earlier. Example: a charge at second 30
//!     is in the bucket that ends at 60. Under a new quota with buckets of 10 s it ends at 40. Charges
//!     until then count in the bucket. Each of them lies before the end, so it counts for the whole new
//!     window.
//! - The bound holds from the change on for the units charged after it, as for the sliding log.

/// A log whose times are rounded up to the end of a bucket.
pub(crate) type SlidingBuckets = super::ring::Ring;

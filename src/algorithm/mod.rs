//! The algorithms: pure state machines, without I/O and without a clock.
//!
//! A state implements [`StateMachine`]. The sliding log and the sliding buckets are one state in [`ring`], the fixed window
//! and the sliding counter one in [`periods`]. A state answers three
//! questions about a [`Quota`](crate::Quota) at a time `now`: how many units are free, how long a
//! number of units takes to become free, and at which time the state no longer matters. It executes two
//! commands: charge units, and refund units. A [`KeyState`] derives everything else from these, such
//! as the waits of a [`Standing`](crate::decision::Standing).
//!
//! A [`Block`] in front of a state refuses its key until a fixed time.
//!
//! Reading a state never changes it, so a denial has no effect on it.

mod block;
mod bytes;
mod carried;
mod key_state;
mod math;
mod packed_log;
mod periods;
mod ring;
mod state_machine;
#[cfg(test)]
mod tests;
mod token_bucket;
mod turn;

pub(crate) use block::Block;
#[cfg(feature = "redis")]
pub(crate) use block::block_micros;
pub(crate) use key_state::KeyState;
pub(crate) use state_machine::{Asked, At, MemoryBudget, Refund, Terms, UnlimitedMemory};
use state_machine::{Snapshot, State, StateMachine, Stored};
pub(crate) use turn::Ahead;

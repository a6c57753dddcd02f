//! Time: the timestamp type, the clock of embedded stores, and the clock of leases.

#[expect(clippy::module_inception, reason = "the file of the trait that the folder is named after")]
mod clock;
mod system;

pub use self::{
    clock::{Clock, ManualClock, Timestamp, TokioClock},
    system::SystemClock,
};
pub(crate) use self::{
    clock::{micros, micros_up, wall_time},
    system::BootClock,
};

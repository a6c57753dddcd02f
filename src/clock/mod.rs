//! Time: the timestamp type, and the clock of embedded stores.

mod boot;
#[expect(clippy::module_inception, reason = "the file of the trait that the folder is named after")]
mod clock;
mod manual;
mod system;
mod tokio_clock;

use self::clock::nanos;
pub(crate) use self::{boot::BootClock, clock::micros, system::wall_time};
pub use self::{
    clock::{Clock, Timestamp},
    manual::ManualClock,
    system::SystemClock,
    tokio_clock::TokioClock,
};

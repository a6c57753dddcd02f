//! Time: the timestamp type, and the clock of embedded stores.

#[cfg(all(feature = "redis", any(target_os = "linux", target_os = "android")))]
mod boot;
#[cfg(not(all(feature = "redis", any(target_os = "linux", target_os = "android"))))]
#[path = "no_boot.rs"]
mod boot;
#[expect(clippy::module_inception, reason = "the file of the trait that the folder is named after")]
mod clock;
mod duration;
mod manual;
mod system;
mod timestamp;
mod tokio_clock;

pub(crate) use self::{boot::BootClock, duration::micros, system::wall_time};
pub use self::{
    clock::Clock, manual::ManualClock, system::SystemClock, timestamp::Timestamp,
    tokio_clock::TokioClock,
};
use duration::nanos;

//! The limiter: the handle that applications hold.

mod check;
mod delay;
mod held;
mod in_flight;
mod keeper;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod limiter;
mod queue;
mod repeated_check;
mod reservation;
mod until_ready;

pub(crate) use self::held::HeldUnits;
pub use self::{
    check::Check,
    limiter::Limiter,
    reservation::{Reservation, Reserved},
};

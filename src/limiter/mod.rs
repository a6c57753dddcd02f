//! The limiter: the handle that applications hold.

mod check;
mod delay;
mod in_flight;
mod keeper;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod limiter;
mod permit;
mod queue;
mod reservation;
mod state;
mod trials;
mod until_ready;

pub(crate) use self::permit::Permit;
pub use self::{
    check::Check,
    limiter::Limiter,
    reservation::{Reservation, Reserved},
};

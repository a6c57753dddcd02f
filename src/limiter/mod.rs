//! The limiter: the handle that applications hold.

mod check;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod limiter;
mod limiter_store;
mod queue;
mod reservation;

pub use self::{
    check::Check,
    limiter::Limiter,
    reservation::{Reservation, Reserve},
};

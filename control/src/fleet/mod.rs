//! The instances of a service: what each announces, and the sums over all of them.

mod announcement;
mod announcer;
#[allow(clippy::module_inception, reason = "the type has the name of its module")]
mod fleet;
mod hits;

pub use self::{
    announcement::Units,
    fleet::{Fleet, Instance, PolicyUnits},
    hits::{HitMark, HitRate, HitRates, Hits},
};
pub(crate) use self::{
    announcement::{Announcement, Increase},
    announcer::Announcer,
    hits::{Added, Hours, KEPT_HOURS},
};

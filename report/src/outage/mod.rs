//! The answers that clients receive while Redis fails, through this crate and two others.

mod faults;
mod load;
mod proxy;
mod run;
mod servers;

pub(crate) use run::print;

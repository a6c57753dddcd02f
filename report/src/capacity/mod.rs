//! The load that Redis bears.

pub(crate) mod costs;
pub(crate) mod points;
pub(crate) mod shares;

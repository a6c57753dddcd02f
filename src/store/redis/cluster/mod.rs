//! A cluster: its nodes, which of them has which slot, and how a request follows its slot.

mod route;
mod slots;
mod topology;

pub(super) use self::route::Cluster;

//! A Redis cluster: its nodes, the hash slots that each has, and requests that follow their slot.
//!
//! - [`slots`] parses what nodes tell about the slots.
//! - [`topology`] keeps the nodes, and which of them has which slot.
//! - [`route`] sends a request to the node that has its slot, and follows redirections.

mod node;
mod route;
mod slots;
mod topology;

pub(super) use self::route::Cluster;
use self::{node::Node, topology::Topology};

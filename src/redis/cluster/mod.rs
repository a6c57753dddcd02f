//! The backend of a Redis cluster, whose nodes have the hash slots.
//!
//! - [`topology`] keeps the nodes, and the node of each slot.
//! - [`route`] sends a request to the node that has its slot, and follows redirections.

mod route;
mod topology;

use self::topology::Node;
pub(super) use self::{route::Cluster, topology::Topology};

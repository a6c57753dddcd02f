//! The identity of a node of a store.

/// The identity of one node of a store: a server on which some of the requests depend, and others do
/// not. For the stores of this crate only.
///
/// A store whose requests all depend on the same server has one node. A Redis cluster
/// has one for each server that has slots. The number is never used again for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The node of a store that has only one. In a store with several, it stands for the store as a
    /// whole, as long as the node of a request is not known.
    pub(crate) const ONLY: Self = Self(0);

    /// Returns the number of the node, unless it is the [only one](Self::ONLY).
    pub(crate) fn number(self) -> Option<u32> {
        (self != Self::ONLY).then_some(self.0)
    }
}

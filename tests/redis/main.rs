//! The shared store, against real servers.

mod differential;
mod servers;

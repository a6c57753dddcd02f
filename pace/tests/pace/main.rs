//! Outgoing calls: their charges, and the pauses that a server asks for.

mod calls;
mod upstream;

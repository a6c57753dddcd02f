//! The text of a configuration as a tree of values that know their place, the same for all formats, and the
//! deserializer that reads it.

mod at;
mod deserializer;
mod mistake;
mod node;
mod toml;

pub(super) use self::{
    at::{At, Entries},
    mistake::Mistake,
    node::Node,
};

//! The text of a configuration as a tree of values that know their place, the same for all formats, and the
//! deserializer that reads it.

mod at;
mod deserializer;
mod json;
mod mistake;
mod node;
mod parse;
mod toml;
mod yaml;

pub use self::{
    at::At,
    mistake::{Mistake, nearest},
    parse::read,
};
pub(super) use self::{
    at::Entries,
    mistake::may_have_secret,
    node::Node,
    parse::{MAX_MISTAKES, parse, read_node},
};

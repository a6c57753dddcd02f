//! Lines of each format as entries.

mod alb;
mod combined;
mod csv;
mod envoy;
mod json;
mod parser;

pub(super) use self::parser::Parser;

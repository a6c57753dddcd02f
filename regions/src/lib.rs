#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../README.md")]

mod both;
mod check;
mod config;
mod divided_line;
mod force;
mod regions;
mod shares;
mod stores;

pub use self::{config::RegionsConfig, regions::Regions};

#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod connection;
mod error;
mod store;
mod worker;

pub use self::{config::PostgresConfig, store::PostgresStore};

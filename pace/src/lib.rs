#![doc = include_str!("../docs/links.md")]
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod headers;
mod layer;
mod pauses;
mod service;
mod structured;

pub use self::{error::PaceError, layer::PaceLayer, service::Pace};

//! [`MemoryConfig`] as serialized data.

use super::MemoryConfig;
use crate::{
    error::Error,
    settings::{OrOff, fields, own_form},
};

fields! {
    MemoryConfig, validate;
    max_keys: usize, "a number of keys, at least 1";
    max_bytes: usize, "a number of bytes";
    hash_seed: OrOff<u64>, "a number, or off";
}

own_form!(MemoryConfig);

fn validate(config: &MemoryConfig) -> Result<(), Error> {
    match config.max_keys {
        0 => Err(Error::invalid("MemoryConfig::max_keys", 0, "a number of keys, at least 1")),
        _ => Ok(()),
    }
}

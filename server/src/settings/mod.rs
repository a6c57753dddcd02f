//! The settings of the service, from flags, the environment and a file, in this order of precedence.

mod bounds;
mod error;
mod flags;
mod options;
mod ratelimit;
mod secrets;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod settings;
mod values;

pub use self::{
    bounds::Bounds,
    error::SettingsError,
    flags::Flags,
    settings::{RedisServers, Settings},
    values::{Address, LogFormat},
};

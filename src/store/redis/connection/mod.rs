//! Connections to Redis: opened, shared by many requests, watched and replaced.

mod connector;
mod dns;
mod health;
mod pool;
mod sentinel;
mod single_flight;

pub(super) use self::{
    connector::{Origin, Server},
    pool::Link,
    sentinel::Sentinels,
    single_flight::Effort,
};

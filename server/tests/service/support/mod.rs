//! The program as a process, and its clients.

mod client;
mod openapi;
mod process;

pub(crate) use self::{
    client::{Reply, exchange, send},
    openapi::{assert_described, requests_are_described},
    process::{Service, program},
};

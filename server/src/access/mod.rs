//! The clients of the service: their tokens, and the policies that each may use.

mod client;
mod clients;

pub use self::{client::Client, clients::Clients};

//! The messages of the gRPC service `shop.Orders`, and its generated code.

/// A request to buy something, or to ask for its price.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(string, tag = "1")]
    pub(crate) article: String,
    #[prost(uint32, tag = "2")]
    pub(crate) pieces: u32,
}

/// The answer to an order.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Placed {
    #[prost(uint64, tag = "1")]
    pub(crate) cents: u64,
}

#[allow(
    dead_code,
    unreachable_pub,
    clippy::all,
    reason = "a server needs no client, and a client no server"
)]
mod generated {
    tonic::include_proto!("shop.Orders");
}

pub(crate) use generated::*;

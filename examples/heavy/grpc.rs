//! Limits the methods of a gRPC service: `cargo run -p plimsoll-heavy-examples --example grpc`.
//!
//! Each client may send 5 requests in any 3 seconds, over gRPC and HTTP together, and place 2 orders
//! among them. A gRPC client over a limit receives RESOURCE_EXHAUSTED with a retry delay, an HTTP client
//! receives 429. The example `grpc_client` places orders and waits as long as the denial says.

mod shop;
#[path = "../support/mod.rs"]
mod support;

use axum::routing::get;
use plimsoll::{Policy, Quota, RateLimitLayer, Rule, by, route};
use shop::{
    Order, Placed,
    orders_server::{Orders, OrdersServer},
};
use tonic::{Request, Response, Status, service::Routes};

struct Shop;

#[tonic::async_trait]
impl Orders for Shop {
    async fn place(&self, order: Request<Order>) -> Result<Response<Placed>, Status> {
        Ok(Response::new(Placed { cents: price(&order.into_inner()) }))
    }

    async fn quote(&self, order: Request<Order>) -> Result<Response<Placed>, Status> {
        Ok(Response::new(Placed { cents: price(&order.into_inner()) }))
    }
}

fn price(order: &Order) -> u64 {
    250 * u64::from(order.pieces)
}

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let clients = Policy::new("clients", "5/3s".parse::<Quota>()?)?;
    let placed = Policy::new("placed-orders", "2/3s".parse::<Quota>()?)?;
    // Both charges are made, or none.
    let place = Rule::new(placed, by::peer_ip()).only(route::grpc("shop.Orders/Place"));
    let layer =
        RateLimitLayer::new(support::limiter_from_env().await?, Rule::new(clients, by::peer_ip()))
            .and(place);

    // The layer recognises gRPC requests by their content type.
    let app = Routes::new(OrdersServer::new(Shop))
        .into_axum_router()
        .route("/", get(|| async { "hello over HTTP\n" }))
        .layer(layer);
    support::serve(app).await
}

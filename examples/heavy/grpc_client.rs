//! A gRPC client that waits as long as the server says: `cargo run -p plimsoll-heavy-examples --example grpc_client`.
//!
//! It places orders at the example `grpc`, at the address `SERVER` (`http://127.0.0.1:3000` by default). A
//! denied call has a [`RetryInfo`]: after this delay, the same call is admitted.
//!
//! [`RetryInfo`]: https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto

mod shop;

use std::{env, error::Error, time::Duration};

use shop::{Order, orders_client::OrdersClient};
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The most calls for one order.
const ATTEMPTS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = env::var("SERVER").unwrap_or_else(|_| "http://127.0.0.1:3000".to_owned());
    let mut client = OrdersClient::connect(server).await?;
    for number in 1..=3 {
        let placed = place(&mut client).await?;
        println!("order {number}: {placed} cents");
    }
    Ok(())
}

/// Places an order. If the limit denies it, waits and tries again.
async fn place(client: &mut OrdersClient<tonic::transport::Channel>) -> Result<u64, Status> {
    let mut attempt = 1;
    loop {
        let order = Order { article: "tea".to_owned(), pieces: 2 };
        match client.place(order).await {
            Ok(placed) => return Ok(placed.into_inner().cents),
            Err(status) => match retry_delay(&status) {
                Some(delay) if attempt < ATTEMPTS => {
                    println!("denied for {} s", delay.as_secs_f64().ceil());
                    tokio::time::sleep(delay).await;
                    attempt += 1;
                }
                _ => return Err(status),
            },
        }
    }
}

/// Returns the delay after which a denied call is admitted. A call that can never be admitted has none:
/// its code is FAILED_PRECONDITION.
fn retry_delay(status: &Status) -> Option<Duration> {
    if status.code() != Code::ResourceExhausted {
        return None;
    }
    status.get_details_retry_info()?.retry_delay
}

//! An operator who finds a blocked IPv6 customer by an address that the customer has now.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use axum::{
    Router, body::Body, extract::connect_info::MockConnectInfo, http::Request, routing::get,
};
use plimsoll::{
    Decision, Key, Limiter, Policy, Quota, RateLimitLayer, RedisStore, Rule,
    by::{self, ClientIp},
};
use plimsoll_testing::servers::Server;
use tower::ServiceExt;

const DAY: Duration = Duration::from_secs(86_400);
/// The address of the requests, and the one in the customer's mail: privacy extensions change the last
/// half from day to day.
const SEEN: &str = "2001:db8:1:2:3456:789a:bcde:f012";
const GIVEN: &str = "2001:db8:1:2::99";

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// The limiters of an operator: embedded, and over Redis.
async fn limiters(server: &Server) -> [Limiter; 2] {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    [Limiter::in_memory(), Limiter::new(store)]
}

fn app(limiter: &Limiter, policy: &Policy, clients: ClientIp) -> Router {
    let rule = Rule::new(policy.clone(), by::client_ip(clients));
    let layer = RateLimitLayer::new(limiter.clone(), rule);
    Router::new().route("/", get(|| async { "hello" })).layer(layer)
}

async fn ask(app: &Router, address: &str) -> u16 {
    let app = app.clone().layer(MockConnectInfo(SocketAddr::new(ip(address), 4711)));
    app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn an_operator_unblocks_an_ipv6_customer() -> Result<(), plimsoll::Error> {
    let server = Server::start();
    for limiter in limiters(&server).await {
        let api = Policy::new("api", Quota::per_day(3))?;
        let app = app(&limiter, &api, ClientIp::peer());
        assert_eq!(ask(&app, SEEN).await, 200);
        // The abuse report names the address of the requests.
        assert_eq!(limiter.block(api.charge(ip(SEEN), 1), DAY).await?, 1, "{limiter:?}");
        assert_eq!([ask(&app, SEEN).await, ask(&app, GIVEN).await], [429, 429]);

        // The first try takes the text of the address for a key, and the report of 0 keys says so.
        assert_eq!(limiter.unblock(api.charge(GIVEN, 1)).await?, 0);
        assert_eq!(ask(&app, SEEN).await, 429);
        let standing = limiter.peek(api.charge(ip(GIVEN), 1)).await?;
        assert!(matches!(standing, Decision::Denied(_)), "the block is found by either address");
        assert_eq!(limiter.unblock(api.charge(ip(GIVEN), 1)).await?, 1);
        assert_eq!(
            [ask(&app, SEEN).await, ask(&app, GIVEN).await, ask(&app, SEEN).await],
            [200, 200, 429]
        );

        assert_eq!(limiter.reset(api.charge(Key::from(ip(GIVEN)), 1)).await?, 1);
        assert_eq!(limiter.reset(api.charge(Key::from(ip(GIVEN)), 1)).await?, 0);
        assert_eq!(ask(&app, SEEN).await, 200);
        assert_eq!(limiter.reset(api.charge(ip("2001:db8:1:3::99"), 1)).await?, 0, "a neighbour");
    }
    Ok(())
}

/// A rule with another prefix makes its keys by the same source.
#[tokio::test]
async fn an_operator_unblocks_a_customer_with_a_wider_prefix() -> Result<(), plimsoll::Error> {
    let server = Server::start();
    for limiter in limiters(&server).await {
        let api = Policy::new("api", Quota::per_day(3))?;
        let clients = ClientIp::peer().ipv6_prefix(56)?;
        let app = app(&limiter, &api, clients.clone());
        let own = "2001:db8:1:ff::7";
        assert_eq!(ask(&app, own).await, 200);
        assert_eq!(limiter.block(api.charge(clients.key(ip(SEEN)), 1), DAY).await?, 1);
        assert_eq!(ask(&app, own).await, 429);
        assert_eq!(limiter.unblock(api.charge(ip(own), 1)).await?, 0, "the key of a /64");
        assert_eq!(limiter.unblock(api.charge(clients.key(ip(own)), 1)).await?, 1);
        assert_eq!(ask(&app, own).await, 200);
    }
    Ok(())
}

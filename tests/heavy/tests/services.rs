//! A tonic service with limits for single methods and for keys in the metadata, served by tonic and
//! by axum.

use std::net::SocketAddr;

use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by, route};
use plimsoll_testing::web::{http1, serve};
use tokio::net::TcpListener;
use tonic::{
    Code, Request, Status,
    service::Routes,
    transport::{Channel, Server, server::TcpIncoming},
};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_client::HealthClient},
    server::health_reporter,
};

/// The ways of serving tonic.
#[derive(Debug, Clone, Copy)]
enum Served {
    Tonic,
    Axum,
    /// The layer around tonic's routes, which are the fallback of an axum router.
    Fallback,
}

const WAYS: [Served; 3] = [Served::Tonic, Served::Axum, Served::Fallback];

impl Served {
    async fn start(self, layer: RateLimitLayer) -> SocketAddr {
        let (reporter, health) = health_reporter();
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        let http = axum::routing::get(|| async { "hello" });
        match self {
            Self::Tonic => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let server = Server::builder().layer(layer).add_service(health);
                tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
                address
            }
            Self::Axum => {
                let app = Routes::new(health).into_axum_router().route("/", http).layer(layer);
                serve(app).await
            }
            Self::Fallback => {
                let routes = Routes::new(health).into_axum_router();
                let service = tower::ServiceBuilder::new().layer(layer).service(routes);
                serve(axum::Router::new().route("/", http).fallback_service(service)).await
            }
        }
    }
}

/// A client that sends its key as metadata.
struct Client {
    health: HealthClient<Channel>,
    key: &'static str,
}

impl Client {
    async fn connect(address: SocketAddr, key: &'static str) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        Self { health: HealthClient::new(channel.connect().await.unwrap()), key }
    }

    fn request(&self) -> Request<HealthCheckRequest> {
        let mut request = Request::new(HealthCheckRequest { service: "shop".into() });
        request.metadata_mut().insert("x-api-key", self.key.parse().unwrap());
        request
    }

    async fn check(&mut self) -> Code {
        let result = self.health.check(self.request()).await;
        result.map_or_else(|status: Status| status.code(), |_| Code::Ok)
    }

    async fn watch(&mut self) -> Code {
        let result = self.health.watch(self.request()).await;
        result.map_or_else(|status: Status| status.code(), |_| Code::Ok)
    }
}

/// One call a day for each key.
fn once() -> Rule {
    Rule::new(Policy::new("once", "1/d").unwrap(), by::header("x-api-key"))
}

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::in_memory(), rule)
}

#[tokio::test]
async fn one_method_is_limited_however_tonic_is_served() {
    for served in WAYS {
        for rule in [
            once().only(route::grpc("grpc.health.v1.Health/Check")),
            once().only(route::is("/grpc.health.v1.Health/Check")),
            once().only(route::is("POST /grpc.health.v1.Health/Check")),
        ] {
            let address = served.start(layer(rule)).await;
            let mut alice = Client::connect(address, "alice").await;
            assert_eq!(alice.check().await, Code::Ok);
            assert_eq!(alice.check().await, Code::ResourceExhausted, "{served:?}");
            assert_eq!([alice.watch().await, alice.watch().await], [Code::Ok; 2], "{served:?}");
            let mut bob = Client::connect(address, "bob").await;
            assert_eq!(bob.check().await, Code::Ok, "a key of its own");
        }
    }
}

#[tokio::test]
async fn all_methods_of_a_service_are_limited_however_tonic_is_served() {
    for served in WAYS {
        let rule = once().only(route::grpc("grpc.health.v1.Health"));
        let address = served.start(layer(rule)).await;
        let mut alice = Client::connect(address, "alice").await;
        assert_eq!(alice.check().await, Code::Ok);
        assert_eq!(alice.watch().await, Code::ResourceExhausted, "{served:?}");
        assert_eq!(alice.check().await, Code::ResourceExhausted, "{served:?}");
        if !matches!(served, Served::Tonic) {
            assert_eq!(http1(address).await.get("/").await.body, "hello");
        }
    }
}

#[tokio::test]
async fn a_service_is_exempt_and_the_rest_is_limited() {
    for served in WAYS {
        let other = layer(once()).exempt(route::grpc("grpc.health.v1.Healthy"));
        let address = served.start(other).await;
        let mut alice = Client::connect(address, "alice").await;
        assert_eq!(alice.check().await, Code::Ok);
        assert_eq!(alice.check().await, Code::ResourceExhausted, "the name of another service");

        let address =
            served.start(layer(once()).exempt(route::grpc("grpc.health.v1.Health"))).await;
        let mut alice = Client::connect(address, "alice").await;
        assert_eq!([alice.check().await, alice.check().await, alice.watch().await], [Code::Ok; 3]);
    }
}

/// A limit that would apply to nothing is a mistake that shows when the program starts.
#[test]
fn names_that_match_no_method_panic() {
    for wrong in [
        "",
        "/",
        "/shop.Orders/Place",
        "shop.Orders/",
        "shop.Orders/Place/",
        "shop..Orders/Place",
        ".Orders",
        "shop.Orders/Place Order",
        "shop.Orders/*",
        "POST shop.Orders/Place",
    ] {
        assert!(std::panic::catch_unwind(|| drop(route::grpc(wrong))).is_err(), "{wrong:?}");
    }
    drop(route::grpc("Greeter/SayHello"));
}

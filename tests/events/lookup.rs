//! The events of lookups that fail. They share one log in the process, so this is a program of its own.
#![cfg(all(feature = "lookup", feature = "tracing"))]

use std::{
    convert::Infallible,
    future::ready,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use plimsoll::{
    Limiter, Lookup, OnFailure, Policy, RateLimitLayer, Rule,
    by::{self, ClientIp},
};
use plimsoll_testing::{alone, log::Log};
use tower::{Layer, ServiceExt, service_fn};

/// One event a second for each kind of failure. It has the text of the error, and no key.
#[tokio::test(start_paused = true)]
async fn failures_are_reported() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let customers = Lookup::new(
        |parts| Some(parts.uri.path().to_owned()),
        |key: String| async move {
            match key.contains("hangs") {
                true => std::future::pending().await,
                false => Err::<Option<u64>, _>("no connection"),
            }
        },
    );
    let policy = Policy::new("api", "9/h").unwrap();
    let rule =
        Rule::new(policy, customers.map(|id| *id)).on_failure(OnFailure::Deny).resolve(&customers);
    let service =
        RateLimitLayer::new(Limiter::in_memory(), rule).layer(service_fn(|_: Request<String>| {
            ready(Ok::<_, Infallible>(Response::new(String::new())))
        }));
    let ask = async |path: &str| {
        let mut request = Request::get(path).body(String::new()).unwrap();
        request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 443)));
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), 503);
    };
    for number in 0..100 {
        ask(&format!("/secret-{number}")).await;
    }
    ask("/secret-hangs").await;
    tokio::time::advance(Duration::from_secs(1)).await;
    ask("/secret").await;
    let failures: Vec<_> =
        log.take().into_iter().filter(|event| event.contains("a lookup has failed")).collect();
    let [first, hangs, last] = &failures[..] else { panic!("{failures:#?}") };
    assert!(first.contains("WARN") && first.contains("kind=\"error\""), "{first}");
    assert!(first.contains("no connection") && first.contains("suppressed=0"), "{first}");
    assert!(hangs.contains("kind=\"timed_out\""), "{hangs}");
    assert!(last.contains("suppressed=99"), "{last}");
    assert!(!failures.iter().any(|event| event.contains("secret")), "{failures:#?}");
}

/// Each warning is reported once in the process, so all of this is one test.
#[tokio::test]
async fn a_lookup_whose_clients_are_all_one_is_reported() {
    if !alone("lookup::a_lookup_whose_clients_are_all_one_is_reported") {
        return;
    }
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let proxies = || ClientIp::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    // The warnings of two requests: from a proxy, and without a peer.
    let warnings = async |source: Option<ClientIp>| {
        let customers = Lookup::new(
            |parts| Some(parts.uri.path().to_owned()),
            async |_| Ok::<_, Infallible>(Some(1)),
        );
        let customers = source.into_iter().fold(customers, Lookup::client_ip);
        let rule = Rule::new(Policy::new("api", "9/h").unwrap(), by::constant("all"));
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule.resolve(&customers));
        let service = layer.layer(service_fn(|_: Request<String>| {
            ready(Ok::<_, Infallible>(Response::new(String::new())))
        }));
        let mut behind = Request::get("/1").body(String::new()).unwrap();
        behind.headers_mut().insert("x-forwarded-for", "192.0.2.1".parse().unwrap());
        behind.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 443)));
        let bare = Request::get("/2").body(String::new()).unwrap();
        for request in [behind, bare] {
            assert_eq!(service.clone().oneshot(request).await.unwrap().status(), 200);
        }
        log.take().into_iter().filter(|event| event.contains("WARN")).collect::<Vec<_>>()
    };
    let own = ClientIp::peer().peer_from(|_: &Parts| None::<IpAddr>);
    assert_eq!(warnings(Some(own)).await, [""; 0], "no peer, as the application says");
    let [no_peer] = &warnings(Some(proxies())).await[..] else { panic!("one warning") };
    assert!(no_peer.contains("requests carry no peer address"), "{no_peer}");
    let [proxy] = &warnings(None).await[..] else { panic!("one warning") };
    assert!(proxy.contains("header=\"x-forwarded-for\""), "{proxy}");
    assert!(proxy.contains("`Lookup::client_ip`"), "{proxy}");
    assert_eq!(warnings(None).await, [""; 0], "once");
}

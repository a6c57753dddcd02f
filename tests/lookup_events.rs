//! The events of lookups that fail. They share one log in the process, so this is a program of its own.
#![cfg(all(feature = "lookup", feature = "tracing"))]

use std::{convert::Infallible, future::ready, time::Duration};

use http::{Request, Response};
use tollgate::{Limiter, Lookup, OnFailure, Policy, RateLimitLayer, Rule};
use tower::{Layer, ServiceExt, service_fn};

#[path = "support/log.rs"]
mod log;

/// One event a second for each kind of failure. It has the text of the error, and no key.
#[tokio::test(start_paused = true)]
async fn failures_are_reported() {
    let log = log::Log::default();
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
    let rule = Rule::new(policy, customers.map(|id| *id))
        .with_on_failure(OnFailure::Deny)
        .resolve(&customers);
    let service =
        RateLimitLayer::new(Limiter::in_memory(), rule).layer(service_fn(|_: Request<String>| {
            ready(Ok::<_, Infallible>(Response::new(String::new())))
        }));
    let ask = async |path: &str| {
        let request = Request::get(path).body(String::new()).unwrap();
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

//! tower's contract: readiness, cloning, bodies of any type, where the layer can be put.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Empty, Full};
use plimsoll::{Limiter, RateLimitLayer, Rule, rule::Tiers};
use plimsoll_pace::PaceLayer;
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt, buffer::BufferLayer, service_fn,
};

use super::{PendingStore, get, limiter, policy, rule};

/// A service that must be ready when it is called, and whose clones are not. Readiness is a permit
/// that `poll_ready` takes, and that a call or a drop releases.
#[derive(Debug)]
struct Strict {
    ready: bool,
    permits: Arc<AtomicUsize>,
}

impl Strict {
    fn new() -> Self {
        Self { ready: false, permits: Arc::default() }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, permits: Arc::clone(&self.permits) }
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        if self.ready {
            self.permits.fetch_sub(1, SeqCst);
        }
    }
}

impl<B> Service<Request<B>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.ready {
            self.ready = true;
            self.permits.fetch_add(1, SeqCst);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(self.ready, "called without having been ready");
        self.ready = false;
        self.permits.fetch_sub(1, SeqCst);
        ready(Ok(Response::new(Full::from("inner"))))
    }
}

async fn statuses<S, RB>(service: &mut S, requests: usize) -> Vec<u16>
where
    S: Service<Request<http_body_util::Empty<Bytes>>, Response = Response<RB>>,
    S::Error: std::fmt::Debug,
{
    let mut statuses = Vec::new();
    for _ in 0..requests {
        let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

/// Between readiness and the call, the inner service is not replaced.
#[tokio::test]
async fn a_layer_updates_a_service_that_runs() {
    let (limiter, _) = limiter();
    let old = RateLimitLayer::new(limiter.clone(), rule("api", "1/min"));
    let new = RateLimitLayer::new(limiter, rule("api", "3/min"));
    let mut service = old.layer(Strict::new());
    let mut status = async |layer: &RateLimitLayer| {
        let request = get("/");
        let service = ServiceExt::<Request<Empty<Bytes>>>::ready(&mut service).await.unwrap();
        layer.update(service);
        service.call(request).await.unwrap().status().as_u16()
    };
    assert_eq!([status(&old).await, status(&old).await], [200, 429]);
    assert_eq!([status(&new).await, status(&new).await, status(&new).await], [200, 200, 429]);
}

#[tokio::test]
async fn the_service_that_was_ready_is_called() {
    let strict = Strict::new();
    let permits = Arc::clone(&strict.permits);
    let mut service = RateLimitLayer::new(limiter().0, rule("p", "2/min")).layer(strict);
    assert_eq!(statuses(&mut service, 4).await, [200, 200, 429, 429]);
    assert_eq!(permits.load(SeqCst), 0, "a denial releases the permit of readiness");
}

#[tokio::test]
async fn a_pending_store_calls_the_service_that_was_ready() {
    let strict = Strict::new();
    let permits = Arc::clone(&strict.permits);
    let limiter = Limiter::new(PendingStore(plimsoll::MemoryStore::new(Default::default())));
    let mut service = RateLimitLayer::new(limiter, rule("p", "2/min")).layer(strict);
    assert_eq!(statuses(&mut service, 4).await, [200, 200, 429, 429]);
    assert_eq!(permits.load(SeqCst), 0);
}

#[tokio::test]
async fn a_dropped_request_releases_readiness() {
    let strict = Strict::new();
    let permits = Arc::clone(&strict.permits);
    let limiter = Limiter::new(PendingStore(plimsoll::MemoryStore::new(Default::default())));
    let mut service = RateLimitLayer::new(limiter, rule("p", "9/min")).layer(strict);
    let mut now = Context::from_waker(std::task::Waker::noop());
    let request = get("/");
    assert!(
        tower::Service::<Request<http_body_util::Empty<Bytes>>>::poll_ready(&mut service, &mut now)
            .is_ready()
    );
    let mut future = Box::pin(service.call(request));
    assert!(future.as_mut().poll(&mut now).is_pending());
    drop(future);
    assert_eq!(permits.load(SeqCst), 0);
}

/// A body of a type of its own, with data and an error of types of their own.
struct Countdown(u8);

#[derive(Debug, PartialEq)]
struct Broken;

impl Body for Countdown {
    type Data = std::io::Cursor<Bytes>;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Broken>>> {
        self.0 -= 1;
        Poll::Ready(match self.0 {
            0 => None,
            1 => Some(Err(Broken)),
            _ => Some(Ok(Frame::data(std::io::Cursor::new(Bytes::from("x"))))),
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(7)
    }
}

#[tokio::test]
async fn a_body_of_any_type_passes_through() {
    let inner = service_fn(|_: Request<http_body_util::Empty<Bytes>>| {
        ready(Ok::<_, BoxError>(Response::new(Countdown(4))))
    });
    let mut service = RateLimitLayer::new(limiter().0, rule("p", "1/min")).layer(inner);
    let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
    let _body: plimsoll::layer::ResponseBody<Countdown> = response.into_body();
}

#[tokio::test]
async fn frames_errors_and_sizes_of_the_inner_body_are_kept() {
    struct Bytewise(Countdown);
    impl Body for Bytewise {
        type Data = Bytes;
        type Error = Broken;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
            let frame = Pin::new(&mut self.0).poll_frame(cx);
            frame.map(|frame| {
                frame.map(|frame| frame.map(|f| f.map_data(std::io::Cursor::into_inner)))
            })
        }
        fn size_hint(&self) -> SizeHint {
            self.0.size_hint()
        }
    }
    let inner = service_fn(|_: Request<http_body_util::Empty<Bytes>>| {
        ready(Ok::<_, BoxError>(Response::new(Bytewise(Countdown(4)))))
    });
    let mut service = RateLimitLayer::new(limiter().0, rule("p", "1/min")).layer(inner);
    let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
    let mut body = Box::pin(response.into_body());
    assert_eq!(body.size_hint().exact(), Some(7));
    let mut frame = || {
        let mut now = Context::from_waker(std::task::Waker::noop());
        body.as_mut().poll_frame(&mut now)
    };
    for _ in 0..2 {
        assert!(matches!(frame(), Poll::Ready(Some(Ok(data))) if data.data_ref().unwrap() == "x"));
    }
    assert!(matches!(frame(), Poll::Ready(Some(Err(Broken)))));
    assert!(matches!(frame(), Poll::Ready(None)));
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_unchanged() {
    let inner = service_fn(|_: Request<http_body_util::Empty<Bytes>>| {
        ready(Err::<Response<Full<Bytes>>, _>(Broken))
    });
    let mut service = RateLimitLayer::new(limiter().0, rule("p", "1/min")).layer(inner);
    let error = service.ready().await.unwrap().call(get("/")).await.unwrap_err();
    assert_eq!(error, Broken);
}

#[tokio::test]
async fn stacked_under_a_service_builder_with_a_buffer() {
    let (limiter, _) = limiter();
    let mut service = ServiceBuilder::new()
        .layer(BufferLayer::new(8))
        .layer(RateLimitLayer::new(limiter.clone(), rule("outer", "3/min")))
        .layer(RateLimitLayer::new(limiter, rule("inner", "2/min")))
        .layer(BufferLayer::new(8))
        .service(Strict::new());
    assert_eq!(statuses(&mut service, 4).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_denied_connection_holds_no_permit_of_a_concurrency_limit() {
    let inner = tower::limit::ConcurrencyLimit::new(Strict::new(), 1);
    let service = RateLimitLayer::new(limiter().0, rule("p", "1/min")).layer(inner);
    let (mut one, mut other) = (service.clone(), service);
    assert_eq!(statuses(&mut one, 2).await, [200, 429]);
    let second = tokio::time::timeout(Duration::from_secs(5), statuses(&mut other, 1));
    assert_eq!(second.await.expect("the permit is free"), [429]);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn all_places_where_axum_takes_a_layer() {
    use axum::{Router, handler::Handler, routing::get as route};

    async fn hello() -> &'static str {
        "hello"
    }
    let layer = |quota| RateLimitLayer::new(limiter().0, rule("p", quota));
    let apps: [(Router, u16); 4] = [
        // The status of the second request to no route: `layer` covers the fallback, the others do not.
        (Router::new().route("/", route(hello)).layer(layer("1/min")), 429),
        (Router::new().route("/", route(hello)).route_layer(layer("1/min")), 404),
        (Router::new().route("/", route(hello).layer(layer("1/min"))), 404),
        (Router::new().route("/", route(hello.layer(layer("1/min")))), 404),
    ];
    for (app, nowhere) in apps {
        let ask =
            |path| app.clone().oneshot(Request::get(path).body(axum::body::Body::empty()).unwrap());
        assert_eq!(super::text(ask("/").await.unwrap()).await.2, "hello");
        assert_eq!(ask("/").await.unwrap().status(), 429);
        assert_eq!(ask("/nowhere").await.unwrap().status().as_u16(), nowhere);
    }
}

#[tokio::test]
async fn a_quota_that_changes_acts_on_the_next_request() {
    let live = policy("p", "1/min");
    let by_all = plimsoll::Rule::new(live.clone(), |_| "everybody");
    let mut service = RateLimitLayer::new(limiter().0, by_all).layer(Strict::new());
    assert_eq!(statuses(&mut service, 2).await, [200, 429]);
    live.set_quota("3/min".parse().unwrap());
    assert_eq!(statuses(&mut service, 3).await, [200, 200, 429]);
}

/// A limit that another one of its name would hide is a mistake that shows when the layer is made.
#[test]
fn two_policies_of_one_name_in_a_layer_panic() {
    let refuses = |make: &(dyn Fn() + std::panic::RefUnwindSafe), message: &str| {
        let panic = std::panic::catch_unwind(make).expect_err(message);
        let text = panic.downcast::<String>().unwrap();
        assert!(text.starts_with(message), "{text}");
    };
    let layer = |rule: Rule| RateLimitLayer::new(Limiter::in_memory(), rule);
    let two = "a layer has two policies named \"ip\" (3/min and 30/d), allowed is one";
    refuses(&|| drop(layer(rule("ip", "3/min")).and(rule("ip", "30/d"))), two);
    let pace = |rule: Rule| PaceLayer::new(Limiter::in_memory(), rule);
    refuses(&|| drop(pace(rule("ip", "3/min")).and(rule("ip", "30/d"))), two);
    // A filter, a shadow, a trial or a tier makes no second quota of the name.
    let others: [fn() -> Rule; 4] = [
        || rule("ip", "30/d").only(|parts| parts.method == "POST"),
        || rule("ip", "30/d").shadow(),
        || rule("x", "1/d").trial(policy("ip", "30/d")),
        || {
            let tiers =
                Tiers::<&str>::new(policy("free", "1/s")).tier("paid", policy("ip", "30/d"));
            tiers.rule(|_| None, |_| "everybody")
        },
    ];
    for other in others {
        refuses(&|| drop(layer(rule("a", "1/s")).and(rule("ip", "3/min")).and(other())), two);
    }
    let of_itself = "the policy \"ip\" of a rule is its trial too";
    refuses(&|| drop(rule("ip", "3/min").trial(policy("ip", "30/d"))), of_itself);
    let ip = policy("ip", "3/min");
    let of_clones = Rule::new(ip.clone(), |_| "everybody");
    refuses(&|| drop(Rule::new(ip.clone(), |_| "a").trial(ip.clone())), of_itself);
    // Clones are one policy. One request has one tier.
    let tiers = Tiers::<&str>::new(policy("api", "1/s")).tier("paid", policy("api", "9/s"));
    let _ =
        layer(of_clones).and(Rule::new(ip, |_| "all")).and(tiers.rule(|_| None, |_| "everybody"));
}

/// Policies that closures choose are known with the first request, which is not admitted without a limit.
#[tokio::test]
async fn two_policies_of_one_name_that_closures_choose_reject_the_request() {
    let (minute, day) = (policy("ip", "3/min"), policy("ip", "30/d"));
    let chosen = |policy: plimsoll::Policy| Rule::tiered(move |_| policy.clone(), |_| "everybody");
    let layer = RateLimitLayer::new(Limiter::in_memory(), chosen(minute)).and(chosen(day));
    let inner = service_fn(|_: Request<_>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 503);
}

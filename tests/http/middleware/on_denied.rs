//! Responses of the application to rejected requests, with the feature `axum` and without it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, request::Parts};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use plimsoll::{
    Decision, Limiter, OnFailure, Quota, RateLimitLayer,
    decision::Denied,
    layer::{DenialResponse, Headers, Rejection, RejectionKind, ResetFormat},
};
use tower::{Layer, ServiceExt, service_fn};

use super::{UnavailableStore, get, limiter, policy, rule, text};

async fn inner(_: Request<Empty<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

/// Returns the response to the second of two requests, of which the quota allows one.
async fn second(layer: RateLimitLayer) -> (u16, HeaderMap, String) {
    let service = layer.layer(service_fn(inner));
    text(service.clone().oneshot(get("/first")).await.unwrap()).await;
    text(service.oneshot(get("/second")).await.unwrap()).await
}

fn over_quota() -> RateLimitLayer {
    RateLimitLayer::new(limiter().0, rule("api", "1/10s"))
}

fn over_capacity() -> RateLimitLayer {
    RateLimitLayer::new(limiter().0, rule("api", "1/10s").cost(|_| 2))
}

fn unavailable() -> RateLimitLayer {
    let rule = rule("api", "1/10s").on_failure(OnFailure::Deny);
    RateLimitLayer::new(Limiter::new(UnavailableStore), rule)
}

const EACH: [(fn() -> RateLimitLayer, u16); 3] =
    [(over_quota, 429), (over_capacity, 403), (unavailable, 503)];

/// Sets the closure for each kind of rejection.
fn on_each<F, R>(layer: RateLimitLayer, respond: F) -> RateLimitLayer
where
    F: Fn(&Rejection<'_>, &Parts) -> R + Clone + Send + Sync + 'static,
    R: Into<DenialResponse>,
{
    layer.on_denied(respond.clone()).on_over_capacity(respond.clone()).on_unavailable(respond)
}

/// A closure with a fixed status says to some clients what is wrong for others. So each kind of rejection has
/// a closure of its own, and without one the response of the layer.
#[tokio::test]
async fn a_closure_answers_one_kind_of_rejection() {
    type Change = fn(RateLimitLayer) -> RateLimitLayer;
    let changes: [(Change, u16); 3] = [
        (|layer| layer.on_denied(|_, _| Response::new("own".to_owned())), 429),
        (|layer| layer.on_over_capacity(|_, _| "own"), 403),
        (|layer| layer.on_unavailable(|_, _| "own"), 503),
    ];
    for (change, own) in changes {
        for (layer, status) in EACH {
            let (actual, headers, body) = second(change(layer())).await;
            assert_eq!((actual, body == "own"), (status, status == own));
            assert_eq!(headers.contains_key("retry-after"), status != 403);
            let (actual, _, body) = second(change(layer()).plain_text()).await;
            assert_eq!((actual, body == "own"), (status, status == own));
            assert!(!body.starts_with('{'), "plain text: {body}");
        }
    }
}

fn with_status(status: StatusCode, text: &str) -> Response<String> {
    Response::builder().status(status).body(text.to_owned()).unwrap()
}

/// The layer sets the status for each of these, and keeps the body of the closure.
#[tokio::test]
async fn a_forgotten_status_is_set() {
    fn each<R: Into<DenialResponse> + 'static>(
        respond: fn() -> R,
    ) -> impl Fn(RateLimitLayer) -> RateLimitLayer {
        move |layer| on_each(layer, move |_, _| respond())
    }
    for (layer, status) in EACH {
        for (layer, content_type) in [
            (each(|| "slow down")(layer()), Some("text/plain; charset=utf-8")),
            (each(|| "slow down".to_owned())(layer()), Some("text/plain; charset=utf-8")),
            #[cfg(feature = "axum")]
            (each(|| Bytes::from_static(b"slow down"))(layer()), Some("application/octet-stream")),
            (each(|| Response::new("slow down".to_owned()))(layer()), None),
            (each(|| Response::new(Full::<Bytes>::from("slow down")))(layer()), None),
            #[cfg(feature = "axum")]
            (each(|| (StatusCode::OK, "slow down"))(layer()), Some("text/plain; charset=utf-8")),
        ] {
            let (actual, headers, body) = second(layer).await;
            assert_eq!((actual, body.as_str()), (status, "slow down"));
            let actual = headers.get("content-type").map(|value| value.to_str().unwrap());
            assert_eq!(actual, content_type);
            assert_eq!(headers["cache-control"], "no-store");
        }
        let empty = each(|| Response::new(String::new()))(layer());
        let (actual, _, body) = second(empty).await;
        assert_eq!((actual, body.as_str()), (status, ""));
    }
}

#[tokio::test]
async fn the_status_of_the_application_is_kept() {
    for (layer, _) in EACH {
        let (status, headers, body) =
            second(on_each(layer(), |_, _| with_status(StatusCode::IM_A_TEAPOT, "tea"))).await;
        assert_eq!((status, body.as_str()), (418, "tea"));
        assert_eq!(headers["cache-control"], "no-store");
        let (status, ..) =
            second(on_each(layer(), |_, _| with_status(StatusCode::NO_CONTENT, ""))).await;
        assert_eq!(status, 204);
    }
}

/// The closure reads the same values as the client.
#[tokio::test]
async fn the_rejection_is_what_the_response_says() {
    use RejectionKind::{OverCapacity, OverQuota, Unavailable};
    for (layer, (kind, wait, decided)) in EACH.into_iter().zip([
        (OverQuota, Some("10"), true),
        (OverCapacity, None, true),
        (Unavailable, Some("1"), false),
    ]) {
        for jitter in [Duration::ZERO, Duration::from_secs(1_000)] {
            let (layer, status) = layer;
            let seen = Arc::new(Mutex::new(None));
            let closure = Arc::clone(&seen);
            let layer = on_each(layer().jitter(jitter), move |rejection, parts| {
                assert_eq!((rejection.kind(), parts.uri.path()), (kind, parts.uri.path()));
                assert_eq!(rejection.denied().is_some(), decided);
                assert_eq!(rejection.status().as_u16(), status);
                let mut seen = closure.lock().unwrap();
                *seen = Some((rejection.headers().clone(), rejection.retry_after_seconds()));
                format!("{:?} {}", rejection.retry_after_seconds(), parts.uri.path())
            });
            let (actual, mut headers, body) = second(layer).await;
            let (named, seconds) = seen.lock().unwrap().take().unwrap();
            assert_eq!((actual, body), (status, format!("{seconds:?} /second")));
            let shown = headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(shown, seconds.map(|seconds| seconds.to_string()));
            if jitter.is_zero() {
                assert_eq!(shown.as_deref(), wait);
            }
            headers.remove("content-type");
            assert_eq!(headers, named, "the layer adds exactly these");
            assert_eq!(headers.contains_key("ratelimit"), decided);
        }
    }
}

/// Headers of the closure with the names of the layer's are replaced, and others stay.
#[tokio::test]
async fn a_closure_that_copies_the_headers_sends_them_once() {
    let layer = over_quota().on_denied(|rejection, _| {
        let mut response = Response::new("no".to_owned());
        *response.headers_mut() = rejection.headers().clone();
        response.headers_mut().insert("retry-after", "7".parse().unwrap());
        response.headers_mut().insert("x-own", "1".parse().unwrap());
        response
    });
    let (_, headers, _) = second(layer).await;
    for (name, value) in [("retry-after", "10"), ("x-own", "1"), ("x-ratelimit-limit", "1")] {
        assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
    }
    assert_eq!(headers.get_all("ratelimit").iter().count(), 1);
    assert_eq!(headers.get_all("ratelimit-policy").iter().count(), 1);
}

/// A closure can answer one kind of client itself, and the others as the layer does.
#[tokio::test]
async fn the_response_without_a_closure_can_be_made_in_the_closure() {
    for (layer, _) in EACH {
        let default = second(layer()).await;
        assert_eq!(second(on_each(layer(), |rejection, _| rejection.to_response())).await, default);
    }
}

type Chunk = Result<Frame<Bytes>, std::io::Error>;

fn chunks(
    chunks: impl IntoIterator<Item = Chunk>,
) -> impl Body<Data = Bytes, Error = std::io::Error> {
    StreamBody::new(futures_util::stream::iter(chunks.into_iter().collect::<Vec<_>>()))
}

fn data(text: &'static str) -> Chunk {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// A body whose frames are not ready at first.
struct Slow(u8);

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0 += 1;
        cx.waker().wake_by_ref();
        match self.0 {
            2 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"late"))))),
            4 => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn a_body_of_the_application_may_stream() {
    let trailer = || {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-trailer", "1".parse().unwrap());
        Ok(Frame::trailers(trailers))
    };
    let layer = over_quota()
        .on_denied(move |_, _| Response::new(chunks([data("slow "), data("down"), trailer()])));
    let service = layer.layer(service_fn(inner));
    service.clone().oneshot(get("/")).await.unwrap();
    let body = service.oneshot(get("/")).await.unwrap().into_body();
    assert_eq!((body.is_end_stream(), body.size_hint().exact()), (false, None));
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-trailer"], "1");
    assert_eq!(collected.to_bytes(), "slow down");

    let (status, _, body) = second(over_quota().on_denied(|_, _| Response::new(Slow(0)))).await;
    assert_eq!((status, body.as_str()), (429, "late"));
    // The error type of the inner body can be any, so the body ends where the stream fails.
    let fails = || [data("slow"), Err(std::io::Error::other("broken")), data("down")];
    let (_, _, body) =
        second(over_quota().on_denied(move |_, _| Response::new(chunks(fails())))).await;
    assert_eq!(body, "slow");
    // The length of a body that is known stays known.
    let layer = over_quota().on_denied(|_, _| "slow down");
    let service = layer.layer(service_fn(inner));
    service.clone().oneshot(get("/")).await.unwrap();
    let body = service.oneshot(get("/")).await.unwrap().into_body();
    assert_eq!((body.is_end_stream(), body.size_hint().exact()), (false, Some(9)));
}

/// A handler that checks a limit itself answers as the layer.
#[tokio::test]
async fn a_denied_check_is_the_response_of_the_layer() {
    for cost in [1, 2] {
        for headers in
            [Headers::default(), Headers::none(), Headers::none().x_ratelimit(ResetFormat::Epoch)]
        {
            let layer = RateLimitLayer::new(limiter().0, rule("api", "1/10s").cost(move |_| cost));
            let expected = second(layer.headers(headers)).await;
            let denied = denied(cost).await;
            assert_eq!(text(Rejection::of(&denied, &headers).to_response()).await, expected);
            assert_eq!(expected.1["cache-control"], "no-store");
        }
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_denied_check_is_a_response_of_axum() {
    use axum::response::IntoResponse;

    let expected = second(over_quota()).await;
    assert_eq!(text(denied(1).await.into_response()).await, expected);
}

async fn denied(cost: u64) -> Denied<'static> {
    let (limiter, policy) = (limiter().0, policy("api", "1/10s"));
    let _ = limiter.check(policy.charge("everybody", cost)).await.unwrap();
    match limiter.check(policy.charge("everybody", cost)).await.unwrap().into_owned() {
        Decision::Denied(denied) => denied,
        Decision::Allowed(_) => panic!("the only unit is spent"),
    }
}

#[tokio::test]
async fn the_shortest_start_limits_each_address() {
    let quota = Quota::per_minute(1);
    let layer = RateLimitLayer::per_ip(limiter().0, quota).unwrap();
    let service = layer.layer(service_fn(inner));
    let ask = async |address: &str| {
        let mut request = get("/");
        let address: std::net::SocketAddr = address.parse().unwrap();
        request.extensions_mut().insert(address);
        text(service.clone().oneshot(request).await.unwrap()).await
    };
    assert_eq!(ask("192.0.2.1:1000").await.0, 200);
    let (status, headers, _) = ask("192.0.2.1:2000").await;
    assert_eq!(
        (status, &headers["ratelimit-policy"]),
        (429, &r#""per-ip";q=1;w=60"#.parse().unwrap())
    );
    assert_eq!(ask("192.0.2.2:1000").await.0, 200);
}

#[tokio::test]
async fn a_layer_that_is_off_neither_charges_nor_marks() {
    let service = over_quota().enabled(false).layer(service_fn(inner));
    for _ in 0..3 {
        let (status, headers, _) = text(service.clone().oneshot(get("/")).await.unwrap()).await;
        assert_eq!((status, headers.contains_key("ratelimit")), (200, false));
    }
    // The last call decides.
    assert_eq!(second(over_quota().enabled(false).enabled(true)).await.0, 429);
}

#[test]
fn the_names_of_headers_are_those_that_are_sent() {
    let names = |headers: Headers| {
        headers.names().iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(Headers::none()), ["retry-after"]);
    assert_eq!(names(Headers::none().draft11()), ["retry-after", "ratelimit-policy", "ratelimit"]);
    let x_ratelimit =
        ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(names(Headers::none().x_ratelimit(ResetFormat::Epoch)), x_ratelimit);
    assert_eq!(names(Headers::default()).len(), 6);
}

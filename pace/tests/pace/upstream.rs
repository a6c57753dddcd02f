//! `PaceLayer` keeps to what the upstream service answers.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{FutureExt, future::join_all};
use http::{Request, Response};
use plimsoll::{Key, Limiter, Policy, Quota, Rule, by};
use plimsoll_pace::{Pace, PaceError, PaceLayer};
use tokio::time::{Instant, advance};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt,
    retry::{Policy as Attempts, RetryLayer},
};

/// A service whose next answers are set, and which notes the paths and the times of calls.
#[derive(Debug, Clone, Default)]
struct Upstream(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Response<String>>,
    calls: Vec<(String, Instant)>,
}

impl Upstream {
    /// Adds an answer. After the last one, calls succeed again.
    fn answers(&self, status: u16, headers: &[(&'static str, &str)]) {
        let answer = Response::builder().status(status);
        let answer =
            headers.iter().fold(answer, |answer, (name, value)| answer.header(*name, *value));
        self.0.lock().unwrap().answers.push_back(answer.body(String::new()).unwrap());
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }
}

impl Service<Request<String>> for Upstream {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let mut state = self.0.lock().unwrap();
        state.calls.push((request.uri().to_string(), Instant::now()));
        ready(Ok(state.answers.pop_front().unwrap_or_default()))
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The status and the headers of an answer.
type Answer = (u16, &'static [(&'static str, &'static str)]);

/// The service, whose answers take one second.
fn slow(
    upstream: &Upstream,
) -> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let upstream = upstream.clone();
    tower::service_fn(move |request: Request<String>| {
        let mut upstream = upstream.clone();
        async move {
            tokio::time::sleep(SECOND).await;
            upstream.call(request).await
        }
    })
}

fn layer() -> PaceLayer {
    let policy = Policy::new("upstream", Quota::per_second(100)).unwrap();
    PaceLayer::new(Limiter::in_memory(), Rule::new(policy, by::constant("us")))
}

async fn call<S: Clone>(client: &Pace<S>, path: &str) -> Result<u16, PaceError<Infallible>>
where
    Pace<S>: Service<
            Request<String>,
            Response = Response<plimsoll::layer::ResponseBody<String>>,
            Error = PaceError<Infallible>,
        >,
{
    let request = Request::get(path).body(String::new()).unwrap();
    Ok(client.clone().oneshot(request).await?.status().as_u16())
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_calls_fail_until_the_end_of_the_pause() {
    let upstream = Upstream::default();
    let client = layer().layer(upstream.clone());
    upstream.answers(429, &[("retry-after", "9")]);
    assert_eq!(call(&client, "/").await.unwrap(), 429, "the answer itself is passed on");
    advance(4 * SECOND).await;
    let error = call(&client, "/").await.unwrap_err();
    assert!(error.is_denied() && error.is_by_upstream() && !error.is_over_capacity());
    assert_eq!(error.retry_after(), Some(5 * SECOND));
    assert_eq!(error.to_string(), "the upstream service allows calls again in 5s");
    assert!(matches!(&error, PaceError::Denied { policy, .. } if policy == "upstream"));
    advance(5 * SECOND - Duration::from_millis(1)).await;
    assert!(call(&client, "/").await.is_err());
    assert_eq!(upstream.calls(), 1, "the server was left in peace");
    advance(Duration::from_millis(1)).await;
    assert_eq!(call(&client, "/").await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_pause_charges_nothing() {
    let upstream = Upstream::default();
    let (limiter, policy) =
        (Limiter::in_memory(), Policy::new("upstream", Quota::per_day(2)).unwrap());
    let rule = Rule::new(policy.clone(), by::constant("us"));
    let client = PaceLayer::new(limiter.clone(), rule).layer(upstream.clone());
    upstream.answers(503, &[("retry-after", "1")]);
    call(&client, "/").await.unwrap();
    for _ in 0..10 {
        assert!(call(&client, "/").await.unwrap_err().is_by_upstream());
    }
    let peeked = limiter.peek(policy.charge("us", 1)).await.unwrap();
    assert_eq!(peeked.outcomes().next().unwrap().standing().remaining, 1);
    advance(SECOND).await;
    call(&client, "/").await.unwrap();
    assert!(!call(&client, "/").await.unwrap_err().is_by_upstream(), "now the quota denies");
}

#[tokio::test(start_paused = true)]
async fn with_a_wait_calls_go_in_order_after_the_pause() {
    let upstream = Upstream::default();
    let client = layer().wait(60 * SECOND).layer(upstream.clone());
    upstream.answers(200, &[("ratelimit", "\"default\";r=0;t=9")]);
    call(&client, "/first").await.unwrap();
    let start = Instant::now();
    let paths: Vec<String> = (0..20).map(|index| format!("/{index}")).collect();
    let calls = paths.iter().map(|path| call(&client, path));
    for status in join_all(calls).await {
        assert_eq!(status.unwrap(), 200);
    }
    let state = upstream.0.lock().unwrap();
    let made: Vec<_> = state.calls[1..].iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(made, paths);
    assert!(state.calls[1..].iter().all(|(_, at)| *at - start == 9 * SECOND), "{state:?}");
}

/// An answer that arrives while calls wait delays them too.
#[tokio::test(start_paused = true)]
async fn waiting_calls_see_a_longer_pause_and_their_deadline() {
    let upstream = Upstream::default();
    let client = layer().wait(10 * SECOND).layer(upstream.clone());
    upstream.answers(429, &[("retry-after", "3")]);
    upstream.answers(429, &[("retry-after", "20")]);
    call(&client, "/").await.unwrap();
    // Both wait for the first pause. The one in front gets the answer with the second.
    let start = Instant::now();
    let (first, second) = tokio::join!(call(&client, "/a"), async {
        tokio::task::yield_now().await;
        call(&client, "/b").await
    });
    assert_eq!(first.unwrap(), 429);
    assert_eq!(start.elapsed(), 3 * SECOND, "it fails at once, not at its deadline");
    // The executor decides whether the second had been let through already.
    if let Err(error) = second {
        assert_eq!(error.retry_after(), Some(20 * SECOND));
    }
    let error = call(&client, "/c").await.unwrap_err();
    assert!(error.is_by_upstream() && error.retry_after() == Some(20 * SECOND), "{error}");
    advance(10 * SECOND).await;
    let start = Instant::now();
    assert_eq!(call(&client, "/d").await.unwrap(), 200);
    assert_eq!(start.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_that_is_dropped_leaves_its_turn() {
    let upstream = Upstream::default();
    let client = layer().wait(60 * SECOND).layer(upstream.clone());
    upstream.answers(503, &[("retry-after", "9")]);
    call(&client, "/").await.unwrap();
    let start = Instant::now();
    let dropped = tokio::time::timeout(SECOND, call(&client, "/dropped"));
    let (dropped, next) = tokio::join!(dropped, call(&client, "/next"));
    assert!(dropped.is_err() && next.unwrap() == 200);
    assert_eq!((start.elapsed(), upstream.calls()), (9 * SECOND, 2));
}

#[tokio::test(start_paused = true)]
async fn an_absurd_pause_is_cut_to_the_maximum() {
    let upstream = Upstream::default();
    let pause = async |layer: PaceLayer, headers: &[(&'static str, &str)]| {
        let client = layer.layer(upstream.clone());
        upstream.answers(429, headers);
        call(&client, "/").await.unwrap();
        call(&client, "/").await.err().and_then(|error| error.retry_after())
    };
    let day: &[_] = &[("retry-after", "86400")];
    assert_eq!(pause(layer(), day).await, Some(300 * SECOND), "the default");
    assert_eq!(pause(layer().max_pause(7 * SECOND), day).await, Some(7 * SECOND));
    assert_eq!(pause(layer().max_pause(86_400 * SECOND), day).await, Some(86_400 * SECOND));
    assert_eq!(pause(layer().max_pause(Duration::ZERO), day).await, None, "switched off");
    // A duration that no clock can add is cut, too.
    let absurd = &[("retry-after", "99999999999999999999999999999999999999999")];
    assert_eq!(pause(layer().max_pause(Duration::MAX), absurd).await, Some(Quota::MAX_WINDOW));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_answer_does_not_end_a_longer_pause() {
    let upstream = Upstream::default();
    let layer = layer();
    // Both calls are on their way when the answers arrive.
    for seconds in ["30", "2"] {
        upstream.answers(429, &[("retry-after", seconds)]);
    }
    let client = layer.layer(slow(&upstream));
    let request = || Request::new(String::new());
    let (one, other) =
        tokio::join!(client.clone().oneshot(request()), client.clone().oneshot(request()));
    assert!(one.unwrap().status() == 429 && other.unwrap().status() == 429);
    let error = client.oneshot(request()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(30 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_pause_applies_to_calls_with_the_same_keys() {
    let upstream = Upstream::default();
    let per_host = Policy::new("per-host", Quota::per_second(100)).unwrap();
    let layer = layer().and(Rule::new(per_host, |parts: &http::request::Parts| {
        Some(Key::from(parts.uri.host()?))
    }));
    let client = layer.layer(upstream.clone());
    upstream.answers(429, &[("retry-after", "9")]);
    call(&client, "http://a.example/").await.unwrap();
    assert!(call(&client, "http://a.example/other").await.unwrap_err().is_by_upstream());
    assert_eq!(call(&client, "http://b.example/").await.unwrap(), 200, "another host");
    // Clones of the layer and of its services share the pauses.
    let clone = layer.clone().layer(upstream.clone());
    assert!(call(&clone, "http://a.example/").await.unwrap_err().is_by_upstream());
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_not_charged_are_not_paused() {
    let upstream = Upstream::default();
    let policy = || Policy::new("upstream", Quota::per_second(100)).unwrap();
    let exempt = Rule::new(policy(), |_: &http::request::Parts| plimsoll::key::Identity::Exempt);
    for rule in [exempt, Rule::new(policy(), by::constant("us")).shadow()] {
        let client = PaceLayer::new(Limiter::in_memory(), rule).layer(upstream.clone());
        upstream.answers(429, &[("retry-after", "9")]);
        assert_eq!(call(&client, "/").await.unwrap(), 429);
        assert_eq!(call(&client, "/").await.unwrap(), 200);
    }
}

/// The answers of providers, with the time until the next call that waits is made. The table of vectors has
/// more of them.
#[tokio::test(start_paused = true)]
async fn the_next_call_waits_as_providers_say() {
    const DATE: (&str, &str) = ("date", "Thu, 01 Jan 2026 00:00:00 GMT");
    let answers: [(Answer, f64); 10] = [
        ((429, &[("retry-after", "2.0")]), 2.0),
        ((429, &[("retry-after", "1.5")]), 2.0),
        ((429, &[("retry-after-ms", "1234"), ("retry-after", "1")]), 1.234),
        ((200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "9")]), 9.0),
        ((200, &[("ratelimit", "limit=9, remaining=0, reset=8")]), 8.0),
        ((200, &[("ratelimit", "\"default\";a=0;w=7")]), 7.0),
        (
            (429, &[DATE, ("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "1767225606")]),
            6.0,
        ),
        ((200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "0.25")]), 0.25),
        (
            (200, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m3s")]),
            63.0,
        ),
        ((200, &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "9")]), 0.0),
    ];
    for ((status, headers), seconds) in answers {
        let upstream = Upstream::default();
        let client = layer().wait(100 * SECOND).layer(upstream.clone());
        upstream.answers(status, headers);
        assert_eq!(call(&client, "/").await.unwrap(), status);
        assert_eq!(call(&client, "/").await.unwrap(), 200);
        let calls = &upstream.0.lock().unwrap().calls;
        let waited = calls[1].1 - calls[0].1;
        // A timer of tokio is up to 1 ms late.
        let late = waited.checked_sub(Duration::from_secs_f64(seconds)).expect("not too early");
        assert!(late <= Duration::from_millis(1), "{headers:?}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_epoch_without_a_date_of_the_server_is_compared_with_the_own_clock() {
    let upstream = Upstream::default();
    let client = layer().layer(upstream.clone());
    #[expect(clippy::disallowed_methods, reason = "the epoch is compared with the system's clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let reset = (now + 200).to_string();
    upstream.answers(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &reset)]);
    call(&client, "/").await.unwrap();
    let wait = call(&client, "/").await.unwrap_err().retry_after().unwrap();
    assert!(wait <= 200 * SECOND && wait > 100 * SECOND, "{wait:?}");
}

/// The pauses after these answers, one call after the other: each is made when the pause before it has ended.
async fn pauses(layer: PaceLayer, answers: &[Answer]) -> Vec<u64> {
    let upstream = Upstream::default();
    let client = layer.layer(upstream.clone());
    let mut pauses = Vec::new();
    for (status, headers) in answers {
        upstream.answers(*status, headers);
        assert_eq!(call(&client, "/").await.unwrap(), *status);
        // A call during the pause is not made.
        let error = call(&client, "/").now_or_never().expect("no wait").err();
        let pause = error.map_or(Duration::ZERO, |error| error.retry_after().unwrap());
        pauses.push(pause.as_secs());
        advance(pause).await;
    }
    pauses
}

#[tokio::test(start_paused = true)]
async fn denials_without_a_time_pause_longer_each_time() {
    let denied: Answer = (429, &[]);
    let all = pauses(layer(), &[denied; 9]).await;
    assert_eq!(all, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    let short = pauses(layer().max_pause(5 * SECOND), &[denied; 5]).await;
    assert_eq!(short, [1, 2, 4, 5, 5]);
    assert_eq!(pauses(layer().max_pause(Duration::ZERO), &[denied; 3]).await, [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn any_other_response_ends_a_series_of_denials_without_a_time() {
    let denied: Answer = (429, &[("retry-after", "-1")]);
    let unavailable: Answer = (503, &[("retry-after", "soon")]);
    let stated: Answer = (429, &[("retry-after", "7")]);
    let other = |status: u16| (status, &[][..]);
    for (between, pause) in [(other(200), 0), (other(404), 0), (other(503), 0), (stated, 7)] {
        let found = pauses(layer(), &[denied, denied, unavailable, between, denied, denied]).await;
        assert_eq!(found, [1, 2, 4, pause, 1, 2], "{between:?}");
    }
}

/// Calls that are in flight at the same time and fail together count as one denial.
#[tokio::test(start_paused = true)]
async fn denials_of_calls_that_were_made_together_count_once() {
    let upstream = Upstream::default();
    let client = layer().layer(slow(&upstream));
    for _ in 0..20 {
        upstream.answers(429, &[]);
    }
    for pause in [1, 2] {
        let calls = join_all((0..10).map(|_| call(&client, "/"))).await;
        assert!(calls.into_iter().all(|call| call.unwrap() == 429));
        let error = call(&client, "/").await.unwrap_err();
        assert_eq!(error.retry_after(), Some(pause * SECOND));
        advance(pause * SECOND).await;
    }
    assert_eq!(call(&client, "/").await.unwrap(), 200);
}

/// Repeats a call that the server has denied, up to three times.
#[derive(Clone)]
struct ThreeTimes(usize);

impl<B, E> Attempts<Request<String>, Response<B>, E> for ThreeTimes {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<String>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Ready<()>> {
        let denied = matches!(result, Ok(response) if response.status() == 429);
        self.0 = self.0.checked_sub(usize::from(denied))?;
        denied.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<String>) -> Option<Request<String>> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_the_layer_waits_as_the_server_says() {
    let upstream = Upstream::default();
    upstream.answers(429, &[("retry-after", "5")]);
    upstream.answers(429, &[("retry-after", "2")]);
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(ThreeTimes(3)))
        .layer(layer().wait(60 * SECOND))
        .service(upstream.clone());
    let start = Instant::now();
    let response = client.oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!((response.status().as_u16(), upstream.calls()), (200, 3));
    assert_eq!(start.elapsed(), 7 * SECOND);
}

/// Without a runtime there is no timer: a wait is an error, and everything else works.
#[test]
fn without_a_runtime_a_pause_is_an_error_and_no_panic() {
    for (layer, by_upstream) in [(layer(), true), (layer().wait(60 * SECOND), false)] {
        let upstream = Upstream::default();
        let client = layer.layer(upstream.clone());
        upstream.answers(429, &[("retry-after", "9")]);
        call(&client, "/").now_or_never().expect("no wait").unwrap();
        let error = call(&client, "/").now_or_never().expect("no wait").unwrap_err();
        assert_eq!(error.is_by_upstream(), by_upstream, "{error}");
    }
}

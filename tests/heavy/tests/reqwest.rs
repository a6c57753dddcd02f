//! A job that mirrors the issues of a forge with `reqwest`, and pauses as the forge asks for.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::any,
};
use http::{Request, Response};
use plimsoll::{Limiter, Policy, Quota, Rule, by, layer::ResponseBody};
use plimsoll_pace::{PaceError, PaceLayer};
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

type Answer = (u16, &'static [(&'static str, &'static str)]);

/// A forge that gives these answers, the last one from then on. It counts the requests.
#[derive(Clone)]
struct Forge(Arc<Mutex<(usize, Vec<Answer>)>>);

impl Forge {
    async fn start(answers: &[Answer]) -> (Self, String) {
        let forge = Self(Arc::new(Mutex::new((0, answers.to_vec()))));
        let app = Router::new().route("/issues", any(respond)).with_state(forge.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/issues", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        (forge, url)
    }

    fn requests(&self) -> usize {
        self.0.lock().unwrap().0
    }
}

async fn respond(State(forge): State<Forge>, body: String) -> impl IntoResponse {
    let mut forge = forge.0.lock().unwrap();
    let answer = forge.1[forge.0.min(forge.1.len() - 1)];
    forge.0 += 1;
    let headers =
        answer.1.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let status = StatusCode::from_u16(answer.0).unwrap();
    (status, headers.collect::<HeaderMap>(), format!("received {body:?}"))
}

/// The layer around the client, as the guide shows it.
fn paced(
    pace: PaceLayer,
) -> impl Service<
    Request<reqwest::Body>,
    Response = Response<ResponseBody<reqwest::Body>>,
    Error = PaceError<reqwest::Error>,
> + Clone {
    let client = reqwest::Client::new();
    let send = service_fn(move |request: Request<reqwest::Body>| {
        let client = client.clone();
        async move { client.execute(request.try_into()?).await.map(Response::<reqwest::Body>::from) }
    });
    ServiceBuilder::new().layer(pace).service(send)
}

fn pace() -> PaceLayer {
    let forge = Policy::new("forge", Quota::per_hour(4_900)).unwrap();
    PaceLayer::new(Limiter::in_memory(), Rule::new(forge, by::constant("our-token")))
}

fn get(url: &str) -> Request<reqwest::Body> {
    Request::get(url).body(reqwest::Body::default()).unwrap()
}

#[tokio::test]
async fn waits_as_the_forge_says_and_goes_on() {
    let busy: Answer = (429, &[("retry-after", "1")]);
    let (forge, url) = Forge::start(&[(200, &[]), busy, (200, &[])]).await;
    let client = paced(pace().wait(Duration::from_secs(30)));
    let mut statuses = Vec::new();
    let mut begun = Vec::new();
    for _ in 0..4 {
        begun.push(Instant::now());
        statuses.push(client.clone().oneshot(get(&url)).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200]);
    assert_eq!(forge.requests(), 4);
    assert!(begun[3] - begun[1] >= Duration::from_secs(1), "the third call waited for its turn");
}

/// A large shop platform sends decimals, and others send a denial and nothing else.
#[tokio::test]
async fn waits_after_a_decimal_and_after_a_denial_without_a_time() {
    for busy in [(429, &[("retry-after", "1.0")][..]), (429, &[])] {
        let (forge, url) = Forge::start(&[busy, (200, &[])]).await;
        let client = paced(pace().wait(Duration::from_secs(30)));
        let begun = Instant::now();
        assert_eq!(client.clone().oneshot(get(&url)).await.unwrap().status(), 429);
        assert_eq!(client.clone().oneshot(get(&url)).await.unwrap().status(), 200);
        assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(forge.requests(), 2);
    }
}

#[tokio::test]
async fn fails_at_once_without_a_wait() {
    let spent: Answer =
        (200, &[("ratelimit", "\"core\";r=0;t=9"), ("ratelimit-policy", "\"core\";q=5;w=60")]);
    let (forge, url) = Forge::start(&[spent]).await;
    let client = paced(pace());
    assert_eq!(client.clone().oneshot(get(&url)).await.unwrap().status(), 200);
    let error = client.clone().oneshot(get(&url)).await.unwrap_err();
    assert!(error.is_denied() && error.is_by_upstream(), "{error}");
    let wait = error.retry_after().unwrap();
    assert!(wait <= Duration::from_secs(9) && wait > Duration::from_secs(1), "{wait:?}");
    assert_eq!(forge.requests(), 1);
}

#[tokio::test]
async fn a_forge_that_is_wrong_does_not_stop_the_job_for_a_day() {
    let absurd: Answer =
        (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "99999999999")]);
    let (_, url) = Forge::start(&[absurd]).await;
    let client = paced(pace().max_pause(Duration::from_secs(60)));
    client.clone().oneshot(get(&url)).await.unwrap();
    let wait = client.clone().oneshot(get(&url)).await.unwrap_err().retry_after().unwrap();
    assert!(wait <= Duration::from_secs(60), "{wait:?}");
}

#[tokio::test]
async fn requests_and_responses_of_reqwest_convert() {
    let (_, url) = Forge::start(&[(200, &[])]).await;
    let client = paced(pace());
    let built =
        reqwest::Client::new().post(&url).header("x-a", "b").body("title=Bug").build().unwrap();
    let request = Request::<reqwest::Body>::try_from(built).unwrap();
    let response = client.clone().oneshot(request).await.unwrap();
    let response = reqwest::Response::from(response.map(reqwest::Body::wrap));
    assert_eq!(response.text().await.unwrap(), "received \"title=Bug\"");

    // The error of the client keeps its type.
    let error = client.oneshot(get("http://127.0.0.1:1/")).await.unwrap_err();
    assert!(matches!(&error, PaceError::Inner(error) if error.is_connect()), "{error}");
    assert!(!error.is_denied());
}

//! A body that ends where no tokio runtime is: it must not panic, and the embedded store settles.

use std::{convert::Infallible, thread, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use plimsoll::{
    Limiter, MemoryStore, Policy, RateLimitLayer, Rule, by,
    memory::MemoryConfig,
    store::{Answer, Request as Asked, Store},
};
use tower::{Layer, ServiceExt, service_fn};

/// A store that answers later, and needs tokio's time for that.
#[derive(Debug)]
struct Later(MemoryStore);

impl Store for Later {
    fn call(&self, request: Asked<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let reply = self.0.call(request, deadline).now().unwrap();
        Answer::pending(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            reply
        })
    }
}

fn left_after_a_body_without_runtime(limiter: Limiter) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bytes = Policy::new("bytes", "1000/h").unwrap();
    let rule =
        Rule::new(bytes.clone(), by::constant("all")).cost(|_| 300).cost_of_body(|sent| sent);
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("four")))
    });
    let service = RateLimitLayer::new(limiter.clone(), rule).layer(inner);
    let response = runtime.block_on(service.oneshot(Request::new(()))).unwrap();
    thread::spawn(move || drop(response)).join().expect("no panic");
    let decision = runtime.block_on(limiter.peek(bytes.charge("all", 0))).unwrap();
    decision.binding().unwrap().standing().remaining
}

#[test]
fn without_a_runtime() {
    assert_eq!(left_after_a_body_without_runtime(Limiter::in_memory()), 1000, "nothing was sent");
    let remote = Limiter::new(Later(MemoryStore::new(MemoryConfig::default())));
    assert_eq!(left_after_a_body_without_runtime(remote), 700, "the estimate stays");
}

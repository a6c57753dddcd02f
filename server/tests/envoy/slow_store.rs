//! A store that stops to answer in the middle of a request.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::RateLimitDescriptor,
    service::ratelimit::v3::{
        RateLimitResponse, rate_limit_response::Code, rate_limit_service_server::RateLimitService,
    },
};
use plimsoll::{
    Error, Limiter, MemoryStore, OnFailure, Resilience,
    error::{Effect, ErrorKind},
    memory::MemoryConfig,
    store::{Answer, Request, Store},
};
use plimsoll_server::envoy::{Decide, Envoy, EnvoyConfig, EnvoyOptions};
use tonic::Status;

use crate::support::{Service, descriptor, hits, request};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: counting
    rate_limit: { unit: hour, requests_per_unit: 1 }
    count_denied: true
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 100 }
";

/// The deadline of a call.
const DEADLINE: Duration = Duration::from_millis(400);

/// The calls that a store does not answer.
#[derive(Debug, Clone, Copy)]
enum Fails {
    /// All after this number.
    After(usize),
    Force,
}

#[derive(Debug)]
struct Failing {
    memory: MemoryStore,
    fails: Fails,
    hangs: bool,
    calls: AtomicUsize,
}

impl Store for Failing {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        let number = self.calls.fetch_add(1, SeqCst);
        let fails = match self.fails {
            Fails::After(calls) => number >= calls,
            Fails::Force => matches!(request, Request::Force(_)),
        };
        match (fails, self.hangs) {
            (false, _) => self.memory.call(request, deadline),
            (true, false) => {
                let error = Error::new(ErrorKind::Unavailable, "no").with_effect(Effect::Unknown);
                Answer::ready(Err(error))
            }
            (true, true) => Answer::pending(std::future::pending()),
        }
    }
}

fn service(fails: Fails, hangs: bool, options: EnvoyOptions) -> Envoy {
    let memory = MemoryStore::new(MemoryConfig::default());
    let store = Failing { memory, fails, hangs, calls: AtomicUsize::new(0) };
    let resilience = Resilience::default().deadline(DEADLINE).without_deny_cache();
    let config = EnvoyConfig::from_text("limits.yaml", LIMITS, options).unwrap();
    Service::over(config, Limiter::with_resilience(store, resilience)).envoy
}

/// Asks about a request that needs this number of calls, one after the other.
async fn ask(
    service: &Envoy,
    calls: u32,
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> Result<RateLimitResponse, Status> {
    let start = tokio::time::Instant::now();
    let request = tonic::Request::new(request("shop", descriptors));
    let response = service.should_rate_limit(request).await;
    assert!(start.elapsed() < DEADLINE * calls + DEADLINE / 2, "{:?}", start.elapsed());
    response.map(tonic::Response::into_inner)
}

fn both_ways() -> [EnvoyOptions; 2] {
    [Decide::Together, Decide::Each]
        .map(|how| EnvoyOptions { decide: how, ..EnvoyOptions::default() })
}

#[tokio::test(start_paused = true)]
async fn a_denial_stays_a_denial_if_it_cannot_be_counted() {
    for (options, hangs) in both_ways().into_iter().flat_map(|it| [(it.clone(), false), (it, true)])
    {
        let service = service(Fails::Force, hangs, options);
        let code = async || {
            ask(&service, 2, [descriptor("counting=a")])
                .await
                .map(|response| response.overall_code())
        };
        assert_eq!(code().await.unwrap(), Code::Ok);
        assert_eq!(code().await.unwrap(), Code::OverLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_one_deadline_for_each_call_if_the_store_hangs() {
    for options in both_ways() {
        let service = service(Fails::After(0), true, options);
        // The process decides by its share, and the second request is counted although it is denied.
        let codes = [
            ask(&service, 1, [descriptor("counting=a")]).await.unwrap().overall_code(),
            ask(&service, 2, [descriptor("counting=a")]).await.unwrap().overall_code(),
        ];
        assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_denies_needs_no_second_answer() {
    for hangs in [false, true] {
        let options = EnvoyOptions { on_failure: OnFailure::Deny, ..EnvoyOptions::default() };
        // A charge, one that is denied and counted, and the look.
        let service = service(Fails::After(4), hangs, options);
        for _ in 0..2 {
            assert!(ask(&service, 2, [descriptor("counting=a")]).await.is_ok());
        }
        let descriptors = [hits("counting=a", 0), descriptor("user=a")];
        let response = ask(&service, 2, descriptors).await.unwrap();
        assert_eq!(response.overall_code(), Code::OverLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_and_a_charge_that_are_decided_together_wait_for_one_deadline_each() {
    let service = service(Fails::After(0), true, EnvoyOptions::default());
    for (calls, expected) in [(2, Code::Ok), (3, Code::OverLimit)] {
        let descriptors = [hits("user=a", 0), descriptor("counting=a")];
        let response = ask(&service, calls, descriptors).await.unwrap();
        assert_eq!(response.overall_code(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_and_a_charge_that_are_decided_each_by_itself_wait_at_the_same_time() {
    let service = service(
        Fails::After(0),
        true,
        EnvoyOptions { decide: Decide::Each, ..EnvoyOptions::default() },
    );
    let descriptors = [hits("counting=a", 0), descriptor("user=a")];
    assert_eq!(ask(&service, 1, descriptors).await.unwrap().overall_code(), Code::Ok);
}

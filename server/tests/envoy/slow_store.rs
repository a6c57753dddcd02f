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
    Effect, Error, ErrorKind, Limiter, MemoryConfig, MemoryStore, OnFailure, Resilience,
    store::{Answer, Request, Store},
};
use plimsoll_server::envoy::{Decide, Envoy, EnvoyConfig, EnvoyOptions};
use tonic::Status;

use crate::support::{descriptor, hits, request};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: counting
    rate_limit: { unit: hour, requests_per_unit: 1 }
    count_denied: true
  - key: quota
    rate_limit: { unit: hour, requests_per_unit: 1 }
    quota_mode: true
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 100 }
";

/// The deadline of a call.
const DEADLINE: Duration = Duration::from_millis(400);

/// Less than two deadlines.
const LONGEST: Duration = Duration::from_millis(700);

/// The calls that a store does not answer.
#[derive(Debug, Clone, Copy)]
enum Fails {
    /// All after this number.
    After(usize),
    Force,
    Refund,
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
            Fails::Refund => matches!(request, Request::Refund(_)),
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
    Envoy::new(config, Limiter::with(store, resilience))
}

async fn ask(
    service: &Envoy,
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> Result<RateLimitResponse, Status> {
    let start = tokio::time::Instant::now();
    let request = tonic::Request::new(request("shop", descriptors));
    let response = service.should_rate_limit(request).await;
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
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
            ask(&service, [descriptor("counting=a")]).await.map(|response| response.overall_code())
        };
        assert_eq!(code().await.unwrap(), Code::Ok);
        assert_eq!(code().await.unwrap(), Code::OverLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_one_deadline_if_the_store_hangs() {
    for options in both_ways() {
        let service = service(Fails::After(0), true, options);
        // The process decides by its share, and the second request would be counted although it is denied.
        let codes = [
            ask(&service, [descriptor("counting=a")]).await.unwrap().overall_code(),
            ask(&service, [descriptor("counting=a")]).await.unwrap().overall_code(),
        ];
        assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_stays_a_denial_if_its_charges_cannot_be_refunded() {
    for hangs in [false, true] {
        let service = service(Fails::Refund, hangs, EnvoyOptions::default());
        let code = async || {
            let descriptors = ["quota=a", "user=a"].map(descriptor);
            ask(&service, descriptors).await.map(|response| response.overall_code())
        };
        assert_eq!(code().await.unwrap(), Code::Ok);
        assert_eq!(code().await.unwrap(), Code::OverLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_denies_needs_no_second_answer() {
    for hangs in [false, true] {
        let options = EnvoyOptions {
            on_failure: OnFailure::Deny,
            strict_looks: true,
            ..EnvoyOptions::default()
        };
        let service = service(Fails::After(2), hangs, options);
        assert!(ask(&service, [descriptor("counting=a")]).await.is_ok());
        let descriptors = [hits("counting=a", 0), descriptor("user=a")];
        let response = ask(&service, descriptors).await.unwrap();
        assert_eq!(response.overall_code(), Code::OverLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_and_a_charge_that_are_decided_together_wait_for_one_deadline() {
    let service = service(Fails::After(0), true, EnvoyOptions::default());
    for expected in [Code::Ok, Code::OverLimit] {
        let descriptors = [hits("user=a", 0), descriptor("counting=a")];
        let response = ask(&service, descriptors).await.unwrap();
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
    assert_eq!(ask(&service, descriptors).await.unwrap().overall_code(), Code::Ok);
}

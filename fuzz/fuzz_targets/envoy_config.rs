//! A configuration of envoyproxy/ratelimit is accepted as a whole, or refused with a message for people. What was
//! accepted decides each request.
//!
//! The first line is a request: the domain, and entries such as `user=alice` of one descriptor.
#![no_main]

use std::task::{Context, Poll, Waker};

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{RateLimitRequest, rate_limit_service_server::RateLimitService},
};
use libfuzzer_sys::fuzz_target;
use plimsoll::Limiter;
use plimsoll_control::{Offenders, Registry};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use tonic::{Code, Request};

/// More mistakes of a file are not reported.
const MAX_MISTAKES: usize = 20;

fuzz_target!(|input: &str| {
    let (request, text) = input.split_once('\n').unwrap_or(("", input));
    let read = || EnvoyConfig::from_text("limits.yaml", text, EnvoyOptions::default());
    match read() {
        Ok(config) => {
            let again = read().expect("it was accepted before");
            assert_eq!(config.domains(), again.domains());
            decide(config, self::request(request));
        }
        Err(error) => {
            assert!((1..=MAX_MISTAKES).contains(&error.errors().len()));
            let message = error.to_string();
            let is_safe = |it: char| !it.is_control() || it == '\n';
            assert!(message.chars().all(is_safe), "{message:?}");
            assert!(message.len() < MAX_MISTAKES * 16_384, "{} bytes", message.len());
        }
    }
});

fn request(line: &str) -> RateLimitRequest {
    let mut words = line.split(' ');
    let domain = words.next().unwrap_or_default().to_owned();
    let entry = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = words.map(entry).collect();
    let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
    RateLimitRequest { domain, descriptors, hits_addend: 1 }
}

fn decide(config: EnvoyConfig, request: RateLimitRequest) {
    let (registry, offenders) = (Registry::default(), Offenders::new(10));
    let service = Envoy::new(config, Limiter::in_memory(), registry, offenders).expect("policies");
    let count = request.descriptors.len();
    let mut answer = service.should_rate_limit(Request::new(request));
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => assert_eq!(response.get_ref().statuses.len(), count),
        // The domain is empty, or the descriptor is too long.
        Poll::Ready(Err(status)) => assert_eq!(status.code(), Code::InvalidArgument),
        Poll::Pending => panic!("it waits"),
    }
}

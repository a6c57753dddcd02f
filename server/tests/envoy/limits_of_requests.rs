//! Requests of any size.

use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use plimsoll::{Limiter, Resilience, error::ErrorKind, store};
use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};

use crate::support::{Says, Service, descriptor, own_limit, request};

const LIMITS: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 2 }
";

#[tokio::test]
async fn a_request_with_a_mistake_is_an_invalid_argument() {
    let service = Service::new(LIMITS);
    let many = |count: usize| (0..count).map(|_| descriptor("user=a"));
    let entries = |count: usize| descriptor(&"user=a ".repeat(count));
    for (request, message) in [
        (request("", many(1)), "the domain of the request is empty"),
        (request("shop", many(0)), "the request has no descriptors"),
        (request("shop", many(33)), "33 descriptors, allowed are 1 to 32"),
        (request("shop", [entries(65)]), "65 entries, allowed are at most 64"),
    ] {
        let status = service.ask(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains(message), "{}", status.message());
    }
    assert!(service.ask(request("shop", many(32))).await.is_ok());
    assert!(service.ask(request("shop", [entries(64)])).await.is_ok());
}

/// The limits that requests bring along count apart from the limits of a descriptor with the key `override`.
#[tokio::test]
async fn no_descriptor_has_the_name_of_the_limits_of_requests() {
    let service = Service::new(&LIMITS.replace("key: user", "key: override"));
    let own = own_limit("user=a", 5, RateLimitUnit::Minute);
    let answer = service.ask(request("shop", [descriptor("override=a"), own])).await.unwrap();
    let says: Vec<_> = answer.statuses.iter().map(Says::of).collect();
    assert!(matches!(says[..], [Says::Ok(2, _, 1), Says::Ok(5, _, 4)]), "{says:?}");
}

#[tokio::test]
async fn long_values_have_budgets_of_their_own() {
    let service = Service::new(LIMITS);
    let [one, other] = ["a", "b"].map(|end| format!("user={}{end}", "x".repeat(100_000)));
    for left in [1, 0] {
        let says = service.says("shop", &one).await;
        assert!(matches!(says, Says::Ok(2, _, remaining) if remaining == left), "{says:?}");
    }
    assert!(matches!(service.says("shop", &one).await, Says::Over(..)));
    assert!(matches!(service.says("shop", &other).await, Says::Ok(2, _, 1)));
}

/// A store that cannot answer.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) ErrorKind);

impl store::Store for Broken {
    fn call(&self, _: store::Request<'_>, _: Option<std::time::Instant>) -> store::Answer {
        store::Answer::ready(Err(plimsoll::Error::new(self.0, "no")))
    }
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable_and_never_unknown() {
    use tonic::Code::{FailedPrecondition, Unavailable};
    for (kind, code) in [
        (ErrorKind::Unavailable, Unavailable),
        (ErrorKind::Unauthorized, Unavailable),
        (ErrorKind::ReadOnly, Unavailable),
        (ErrorKind::OutOfMemory, Unavailable),
        (ErrorKind::Loading, Unavailable),
        (ErrorKind::WrongType, Unavailable),
        (ErrorKind::Protocol, Unavailable),
        (ErrorKind::Unsupported, Unavailable),
        (ErrorKind::BreakerOpen, Unavailable),
        (ErrorKind::Deadline, Unavailable),
        (ErrorKind::QueueFull, Unavailable),
        (ErrorKind::Invalid, FailedPrecondition),
    ] {
        let limiter = Limiter::with_resilience(Broken(kind), Resilience::none());
        let config =
            EnvoyConfig::from_text("limits.yaml", LIMITS, EnvoyOptions::default()).unwrap();
        let service = Service::over(config, limiter);
        let asked = request("shop", [descriptor("user=alice")]);
        let status = service.ask(asked).await.unwrap_err();
        assert_eq!(status.code(), code, "{kind:?}");
        assert!(!status.message().contains("alice"), "{}", status.message());
    }
}

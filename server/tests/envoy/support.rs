//! A service in this process, and its client.

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus, rate_limit::Unit},
            rate_limit_service_server::RateLimitService,
        },
        r#type::v3::RateLimitUnit,
    },
    google::protobuf::UInt64Value,
};
use plimsoll::{Limiter, MemoryStore, clock::ManualClock, memory::MemoryConfig};
use plimsoll_control::{Offenders, Registry};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use tonic::{Request, Status};

/// A service over an embedded store with a clock that the test moves.
pub(crate) struct Service {
    pub(crate) envoy: Envoy,
    pub(crate) clock: ManualClock,
}

/// The status of a descriptor as a test writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// There is no limit.
    Free,
    Unlimited,
    /// The limit, and the requests that remain of it.
    Ok(u32, Unit, u32),
    Over(u32, Unit),
}

impl Service {
    pub(crate) fn new(yaml: &str) -> Self {
        Self::with(yaml, EnvoyOptions::default())
    }

    pub(crate) fn with(yaml: &str, options: EnvoyOptions) -> Self {
        Self::of(EnvoyConfig::from_text("limits.yaml", yaml, options).unwrap())
    }

    pub(crate) fn of(config: EnvoyConfig) -> Self {
        let (clock, limiter) = memory();
        Self { clock, ..Self::over(config, limiter) }
    }

    /// Creates the service over another limiter, whose clock the test does not move.
    pub(crate) fn over(config: EnvoyConfig, limiter: Limiter) -> Self {
        let envoy = Envoy::new(config, limiter, Registry::default(), Offenders::new(10)).unwrap();
        Self { envoy, clock: ManualClock::at(0) }
    }

    pub(crate) async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.envoy.should_rate_limit(Request::new(request)).await.map(tonic::Response::into_inner)
    }

    /// Asks about descriptors of one hit each.
    pub(crate) async fn decide(&self, domain: &str, descriptors: &[&str]) -> (Code, Vec<Says>) {
        self.answer(domain, descriptors.iter().map(|it| descriptor(it))).await
    }

    pub(crate) async fn answer(
        &self,
        domain: &str,
        descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
    ) -> (Code, Vec<Says>) {
        let response = self.ask(request(domain, descriptors)).await.unwrap();
        (response.overall_code(), response.statuses.iter().map(Says::of).collect())
    }

    /// Returns the status of one descriptor, to which one hit is charged.
    pub(crate) async fn says(&self, domain: &str, descriptor: &str) -> Says {
        let (code, says) = self.decide(domain, &[descriptor]).await;
        assert_eq!(code == Code::OverLimit, matches!(says[0], Says::Over(..)), "{says:?}");
        says[0]
    }
}

impl Says {
    pub(crate) fn of(status: &DescriptorStatus) -> Self {
        match (&status.current_limit, status.code()) {
            (None, Code::Ok) if status.limit_remaining == u32::MAX => Self::Unlimited,
            (None, Code::Ok) => Self::Free,
            (Some(limit), Code::Ok) => {
                Self::Ok(limit.requests_per_unit, limit.unit(), status.limit_remaining)
            }
            (Some(limit), Code::OverLimit) => Self::Over(limit.requests_per_unit, limit.unit()),
            _ => panic!("{status:?}"),
        }
    }
}

/// Returns a limiter over an embedded store, and its clock.
pub(crate) fn memory() -> (ManualClock, Limiter) {
    let clock = ManualClock::at(1_700_000_000_000_000);
    let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
    (clock, Limiter::new(store))
}

pub(crate) fn request(
    domain: &str,
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> RateLimitRequest {
    let descriptors = descriptors.into_iter().collect();
    RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 }
}

/// Returns the descriptor of a text such as `user=alice path=/x`.
pub(crate) fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |word: &str| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        Entry { key: key.into(), value: value.into() }
    };
    let entries = text.split_whitespace().map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

/// Returns a descriptor that says its hits itself.
pub(crate) fn hits(text: &str, hits: u64) -> RateLimitDescriptor {
    let hits_addend = Some(UInt64Value { value: hits });
    RateLimitDescriptor { hits_addend, ..descriptor(text) }
}

pub(crate) fn negative(text: &str, number: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..hits(text, number) }
}

/// Returns a descriptor that brings a limit along.
pub(crate) fn own_limit(
    text: &str,
    requests_per_unit: u32,
    unit: RateLimitUnit,
) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit: unit as i32 });
    RateLimitDescriptor { limit, ..descriptor(text) }
}

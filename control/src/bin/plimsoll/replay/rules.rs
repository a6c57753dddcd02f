//! The rules of a configuration file, over the requests of logs: the layer of the service decides each of them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write,
    future::{Ready, ready},
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Request as HttpRequest, Response, header::HOST};
use plimsoll::{Decision, Limiter, MemoryStore, Quota, clock::ManualClock};
use plimsoll_control::{Config, ConfigService};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    log::Entry,
    peaks::Peaks,
    requests::{Numbers, Request},
    simulation::unbounded,
    tally::Tally,
};
use crate::client::Failure;

/// Headers that a rule may read without naming them: where proxies write addresses, and where tokens and preflights are.
const KNOWN_HEADERS: [&str; 9] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "authorization",
    "cookie",
    "origin",
    "access-control-request-method",
];

/// The keys that no log has, by their names in the lines of rules.
const UNKNOWABLE: [&str; 3] = ["claim(", "path_param(", "matched_route"];

/// The rules of a file, and what they have decided.
pub(super) struct Rules {
    config: Config,
    service: ConfigService<Answered>,
    clock: ManualClock,
    decided: Arc<Mutex<Decided>>,
    /// The headers of requests, and for the headers that a rule names the requests that lack them.
    headers: Vec<(HeaderName, Option<u64>)>,
    /// The requests that are not judged: those without a path, or without an address that a rule needs.
    pub(super) unjudged: u64,
}

/// The decisions of the layer.
pub(super) struct Decided {
    pub(super) numbers: Numbers,
    /// The requests that a rule has charged.
    pub(super) charged: u64,
    /// The requests that were denied, by any rule.
    pub(super) denied: u64,
    pub(super) policies: BTreeMap<(String, &'static str), PolicyCounts>,
}

/// The counts of a policy, as one of the kinds `live`, `shadow` and `trial`.
pub(super) struct PolicyCounts {
    pub(super) quota: Quota,
    pub(super) tally: Tally,
    pub(super) peaks: Peaks,
}

/// The service behind the layer.
#[derive(Debug, Clone)]
struct Answered;

impl Rules {
    /// Creates the layer of a configuration over a store in this process. Units are never leased, and no request waits
    /// for its turn.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration has no rules.
    pub(super) fn new(config: Config) -> Result<Self, Failure> {
        let clock = ManualClock::default();
        let limiter = Limiter::new(MemoryStore::new(unbounded().clock(clock.clone())));
        let decided = Arc::new(Mutex::new(Decided {
            numbers: Numbers::default(),
            charged: 0,
            denied: 0,
            policies: BTreeMap::new(),
        }));
        let sink = Arc::clone(&decided);
        let layer = config.layer_with(&limiter, move |layer| {
            let sink = Arc::clone(&sink);
            layer.delay(Duration::ZERO).on_decision(move |decision, _| lock(&sink).record(decision))
        });
        let service = layer.map_err(Failure::of)?.layer(Answered);
        let named: Vec<_> = config.rules().iter().flat_map(|rule| named_headers(rule)).collect();
        let known = KNOWN_HEADERS.map(HeaderName::from_static);
        let known = known.into_iter().filter(|name| !named.contains(name));
        let mut headers: Vec<_> = known.map(|name| (name, None)).collect();
        headers.extend(named.into_iter().map(|name| (name, Some(0))));
        Ok(Self { config, service, clock, decided, headers, unjudged: 0 })
    }

    /// Decides the request of an entry.
    pub(super) fn record(&mut self, entry: &Entry) -> Result<(), Failure> {
        let Some(request) = self.request(entry) else {
            self.unjudged += 1;
            return Ok(());
        };
        self.clock.set(entry.at());
        let context = &mut Context::from_waker(Waker::noop());
        let _ready = Service::<HttpRequest<()>>::poll_ready(&mut self.service, context);
        let Poll::Ready(Ok(response)) = pin!(self.service.call(request)).poll(context) else {
            return Err(Failure::new("the layer waits, although its store is in this process"));
        };
        // Only a rule that needs an address answers so.
        self.unjudged += u64::from(response.status().is_server_error());
        Ok(())
    }

    /// Returns the request of an entry, or `None` if its path or its method is none.
    fn request(&mut self, entry: &Entry) -> Option<HttpRequest<()>> {
        let mut request = HttpRequest::new(());
        *request.uri_mut() = entry.target()?.parse().ok()?;
        *request.method_mut() = entry.method().unwrap_or("GET").parse().ok()?;
        for (name, missing) in &mut self.headers {
            let value = entry.header(name.as_str());
            match value.and_then(|value| HeaderValue::from_str(value).ok()) {
                Some(value) => drop(request.headers_mut().insert(name.clone(), value)),
                None => missing.iter_mut().for_each(|missing| *missing += 1),
            }
        }
        if let Some(host) = entry.host().and_then(|host| HeaderValue::from_str(host).ok()) {
            request.headers_mut().insert(HOST, host);
        }
        if let Some(ip) = entry.ip() {
            request.extensions_mut().insert(SocketAddr::new(ip, 0));
        }
        Some(request)
    }

    pub(super) fn decided(&self) -> MutexGuard<'_, Decided> {
        lock(&self.decided)
    }

    /// Returns what the log could not say, or the replay leaves out.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (name, missing) in &self.headers {
            if let Some(missing) = missing.filter(|missing| *missing > 0) {
                notes.push(format!(
                    "{missing} requests have no header {name} in the log, which a rule reads"
                ));
            }
        }
        for rule in self.config.rules() {
            for unknowable in UNKNOWABLE.iter().filter(|it| rule.contains(**it)) {
                let name = unknowable.trim_end_matches('(');
                notes.push(format!("no log has the {name} of the rule: {rule}"));
            }
        }
        let policies = self.config.registry().policies();
        for policy in policies.iter().map(|it| it.policy()).filter(|it| it.quota().is_concurrent())
        {
            let mut note = format!("the policy {} limits requests in flight", policy.name());
            let _ = write!(note, ", which a log does not show: it is not judged");
            notes.push(note);
        }
        if self.unjudged > 0 {
            let count = self.unjudged;
            notes
                .push(format!("{count} requests have no path, or no address: they are not judged"));
        }
        notes
    }
}

impl Decided {
    fn record(&mut self, decision: &Decision<'_>) {
        self.charged += 1;
        self.denied += u64::from(!decision.is_allowed());
        for outcome in decision.outcomes() {
            let charge = outcome.charge();
            if charge.quota().is_concurrent() {
                continue;
            }
            let kind = match (charge.is_live(), charge.is_trial()) {
                (true, _) => "live",
                (_, true) => "trial",
                _ => "shadow",
            };
            let key = *charge.key();
            let request = Request {
                at: decision.time().as_micros(),
                key,
                number: self.numbers.of(key),
                cost: charge.cost(),
            };
            let place = (charge.policy().name().to_owned(), kind);
            let is_denied = matches!(outcome.name(), "denied" | "would_deny");
            let new = PolicyCounts {
                quota: *charge.quota(),
                tally: Tally::default(),
                peaks: Peaks::new(charge.quota().window()),
            };
            let counts = self.policies.entry(place).or_insert(new);
            counts.tally.record(&request, is_denied);
            counts.peaks.record(&request);
        }
    }
}

/// Returns the headers that the line of a rule names.
fn named_headers(rule: &str) -> impl Iterator<Item = HeaderName> {
    let names = rule.split("header(").skip(1).filter_map(|rest| rest.split(')').next());
    names.filter_map(|name| name.parse().ok())
}

fn lock(decided: &Mutex<Decided>) -> MutexGuard<'_, Decided> {
    decided.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service<HttpRequest<()>> for Answered {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: HttpRequest<()>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

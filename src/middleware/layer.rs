//! The layer and its settings.

use std::{fmt, sync::Arc, time::Duration};

use http::request::Parts;
use tower_layer::Layer;

use super::{
    decide::{Decider, DenialFormat, OnRejected},
    headers::Headers,
    respond::{DenialResponse, Rejection},
    service::RateLimit,
};
use crate::{
    decision::Decision,
    error::Error,
    limiter::Limiter,
    policy::Policy,
    quota::Quota,
    rule::{Rule, Rules, by},
    telemetry::Announcement,
};

/// A tower [`Layer`] that limits the requests of a service.
///
/// It charges each request under one or several [`Rule`]s. An admitted request goes to the inner
/// service, and its response gets rate limit [`Headers`]. A denied request gets a response from the
/// layer. The layer adds no errors of its own, so it needs no error handling.
///
/// # Examples
///
/// 60 requests a minute for each API key:
///
/// ```
/// use axum::{Router, routing::get};
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
///
/// # fn main() -> Result<(), plimsoll::Error> {
/// let per_client = Policy::new("per-client", Quota::per_minute(60))?;
/// let rule = Rule::new(per_client, by::header("x-api-key"));
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// Two rules, an [exempt](Self::exempt) path, and other responses:
///
/// ```
/// use std::time::Duration;
///
/// use axum::{Router, routing::get};
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, layer::Headers, route};
///
/// # fn main() -> Result<(), plimsoll::Error> {
/// let per_client = Policy::new("per-client", Quota::per_minute(60))?;
/// let overall = Policy::new("overall", Quota::per_second(500))?;
/// let layer = RateLimitLayer::new(Limiter::in_memory(), Rule::new(per_client, by::peer_ip()))
///     .and(Rule::new(overall, by::constant("all")))
///     .exempt(route::is("/health"))
///     .headers(Headers::none().draft11())
///     .jitter(Duration::from_secs(5))
///     .plain_text();
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Several rules, several layers
///
/// The rules of one layer are decided together: all [`Charges`](crate::policy::Charges) are made, or none is. Stacked
/// layers are separate checks, from the outermost inward. If an inner layer denies the request, the
/// charges of outer layers remain. The `RateLimit` headers list the [policies](crate::Policy) of
/// all layers.
///
/// With axum's [`Router::layer`], requests to unknown paths spend units as well. With
/// [`Router::route_layer`], they do not.
///
/// [`Router::layer`]: https://docs.rs/axum/latest/axum/struct.Router.html#method.layer
/// [`Router::route_layer`]: https://docs.rs/axum/latest/axum/struct.Router.html#method.route_layer
///
/// # First start
///
/// With the feature `tracing`, a layer emits one event at level `INFO` when it first creates a
/// service. The event has the policies with their quotas, the store, and the resilience around it. It
/// contains neither keys nor addresses:
///
/// ```text
/// INFO plimsoll: api 100/min sliding-log; store memory (1000000 keys, 256 MiB)
/// ```
///
/// Install the subscriber before the layer is added to a router. Clones of a layer emit one event
/// together.
///
/// # Responses
///
/// | outcome | status | gRPC status | `Retry-After` |
/// |---|---|---|---|
/// | not enough units now | 429, problem type `quota-exceeded` | `RESOURCE_EXHAUSTED` | the wait, if the store named one |
/// | the cost exceeds the capacity | 403 | `FAILED_PRECONDITION` | none: waiting does not help |
/// | the [`Store`](crate::store::Store) cannot answer, and a rule says [`OnFailure::Deny`](crate::OnFailure::Deny) | 503, problem type `temporary-reduced-capacity` | `UNAVAILABLE` | 1 s |
/// | the request has no [peer address](crate::key::Identity::NoPeer), which a rule charges | 500 | `INTERNAL` | none: all requests have this mistake |
///
/// Each of these responses has `Cache-Control: no-store`, so that no cache serves the denial of one
/// client to others.
///
/// The gRPC status is the answer to gRPC requests (POST over HTTP/2) and to gRPC-Web requests (POST over
/// any version of HTTP), which are recognized by their content type. The status is in the headers of a
/// 200 response without a body. Its details are `RetryInfo` and `QuotaFailure`. No feature is needed for
/// this.
///
/// For gRPC-Web, add this layer outside of `tonic_web::GrpcWebLayer`, which changes the content
/// type. If browsers call the service, add the CORS layer [outside](crate::guide::browsers) of both,
/// and expose the headers `grpc-status`, `grpc-message` and `grpc-status-details-bin`.
#[derive(Clone)]
pub struct RateLimitLayer(Arc<Decider>);

impl RateLimitLayer {
    /// Creates a layer with one [`Rule`]. [`and`](Self::and) adds others.
    #[must_use]
    pub fn new(limiter: Limiter, rule: Rule) -> Self {
        Self(Arc::new(Decider {
            limiter,
            enabled: true,
            rules: Rules::new(rule),
            exempt: Vec::new(),
            headers: Headers::default(),
            jitter: Duration::ZERO,
            delay: Duration::ZERO,
            denial_format: DenialFormat::default(),
            visible: false,
            on_decision: None,
            first_requests: Arc::default(),
            announcement: Announcement::default(),
        }))
    }

    /// Creates a layer with one limit for each [peer address](by::peer_ip), under a policy named
    /// `per-ip`. The quota is a [`Quota`] or its text, such as `100/min`.
    /// A rule of your own, with [`new`](Self::new), chooses another key, name or cost. A second limit over the
    /// same limiter needs another name: two policies named `per-ip` would count the same units.
    ///
    /// Serve the application with `into_make_service_with_connect_info::<SocketAddr>()`, as below. Without
    /// the address of the peer, the layer [rejects](crate::key::Identity::NoPeer) each request with status 500.
    ///
    /// Behind a proxy all clients have the address of the proxy, and share one budget. There, use
    /// [`by::client_ip`] in a rule of your own.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::{Router, routing::get};
    /// use plimsoll::{Limiter, Quota, RateLimitLayer};
    ///
    /// # async fn serve(listener: tokio::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
    /// let layer = RateLimitLayer::per_ip(Limiter::in_memory(), Quota::per_minute(100))?;
    /// let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if `quota` is a text that is no [quota](Quota#impl-FromStr-for-Quota).
    pub fn per_ip<Q>(limiter: Limiter, quota: Q) -> Result<Self, Error>
    where
        Q: TryInto<Quota>,
        Error: From<Q::Error>,
    {
        Ok(Self::new(limiter, Rule::new(Policy::new("per-ip", quota)?, by::peer_ip())))
    }

    /// Adds a [`Rule`], which is decided in the same atomic step as the others.
    ///
    /// # Panics
    ///
    /// Panics if there are already [`Charges::MAX`](crate::policy::Charges::MAX) rules, or if another rule has another
    /// policy of the same name: one name is one quota.
    #[must_use]
    #[track_caller]
    pub fn and(mut self, rule: Rule) -> Self {
        Arc::make_mut(&mut self.0).rules.push(rule);
        self
    }

    /// Passes the requests for which `exempt` returns true to the inner service, without a charge
    /// and without headers. [`route::is`](crate::route::is) and [`route::grpc`](crate::route::grpc)
    /// are ready-made closures.
    ///
    /// A closure that compares paths should read [`route::path`](crate::route::path): inside of a
    /// nested router of axum, `parts.uri` is without the prefix of that router. For a path with
    /// percent-encoding or with other spellings, the closure is called a second time, and
    /// `route::is` then accepts [no other spelling](crate::route#other-spellings-of-a-path).
    #[must_use]
    pub fn exempt<F>(self, exempt: F) -> Self
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.with(|decider| decider.exempt.push(Arc::new(exempt)))
    }

    /// Switches the layer on or off. While it is off, every request passes as if it were
    /// [exempt](Self::exempt). The default is on.
    ///
    /// This is the way to run a service without limits, in tests for example. With
    /// `tower::util::option_layer`, a router does not compile: both branches must have the same
    /// response body, and this layer [changes it](crate::layer::ResponseBody).
    ///
    /// ```
    /// # use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
    /// # let rule = Rule::new(Policy::new("p", Quota::per_minute(60))?, by::header("x-api-key"));
    /// let limited = std::env::var_os("NO_LIMITS").is_none();
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), rule).enabled(limited);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn enabled(self, enabled: bool) -> Self {
        self.with(|decider| decider.enabled = enabled)
    }

    /// Sets the rate limit [`Headers`] of responses. The default is five headers.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|decider| decider.headers = headers)
    }

    /// Adds a random time of up to `max` to the [wait](crate::decision::Denied::retry_after) in a denial, so that
    /// clients do not all return at once. The default is no jitter.
    ///
    /// `Retry-After` counts whole seconds, so there `max` is rounded up to whole seconds.
    #[must_use]
    pub fn jitter(self, max: Duration) -> Self {
        self.with(|decider| decider.jitter = max)
    }

    /// Lets a request over its limit wait inside the layer, for at most `max`, instead of denying it at
    /// once. The default is not to wait.
    ///
    /// - The requests of one key are admitted in the order in which they came, and no faster than the
    ///   quota allows. A request within its limits does not wait, unless others wait for the same key.
    ///   Over a remote store, requests that are decided at the same time may pass each other.
    /// - A request whose turn would come after `max` is denied at once. Its turn is when its units come back,
    ///   after the units of the requests that wait for the same key. `Retry-After` is the time until its turn.
    ///   Example: of 100 requests under `20/s` that may wait for 2 s, 20 pass at once, 20 after 1 s, 20 after 2
    ///   s, and 40 are denied at once.
    /// - A request that waits is denied later only if its turn comes late by more than an eighth of `max`,
    ///   because other processes, checks that do not wait, or a slow store have delayed it.
    /// - Under a [sliding counter](crate::Algorithm::SlidingCounter), the time of a turn is an estimate for
    ///   costs above 1. With leases or [regions](https://docs.rs/plimsoll-regions), it is an estimate too.
    /// - At most 10,000 requests of a limiter wait in this process. The next one is
    ///   denied at once.
    /// - If the client disconnects, the server drops the request. It leaves the queue and has spent
    ///   nothing, unless its units had already been requested from a remote store.
    /// - A rule that says [`OnFailure::Deny`](crate::OnFailure::Deny) rejects a request at once while the
    ///   store cannot answer.
    /// - With several rules, a request waits for one key at a time: that with the longest wait.
    /// - In a runtime without time enabled, requests are denied at once.
    ///
    /// The page on [delays](crate::guide::responses#waiting-instead-of-a-denial) says when to use it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by};
    /// let search = Policy::new("search", "5/s token-bucket(1)")?;
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), Rule::new(search, by::peer_ip()))
    ///     .delay(Duration::from_secs(2));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn delay(self, max: Duration) -> Self {
        self.with(|decider| decider.delay = max)
    }

    /// Makes every rule added so far a [shadow](Rule::shadow): it is decided and reported, but no
    /// request is denied and no header is shown. [`on_decision`](Self::on_decision) shows the
    /// decisions.
    #[must_use]
    pub fn shadow(self) -> Self {
        self.with(|decider| decider.rules.shadow())
    }

    /// Inserts a [`Decisions`](crate::layer::Decisions) into the extensions of each request, for handlers, and
    /// of each response, for outer layers. This costs a few allocations for each request.
    #[must_use]
    pub fn visible(self) -> Self {
        self.with(|decider| decider.visible = true)
    }

    /// Denies requests in plain text instead of problem documents (RFC 9457).
    #[must_use]
    pub fn plain_text(self) -> Self {
        self.with(|decider| decider.denial_format.is_plain = true)
    }

    /// Sets a closure that creates the response to a denied request, which may come back later: status
    /// 429. The closure returns any type that converts into a [`DenialResponse`]: with the feature `axum`,
    /// every `IntoResponse`.
    ///
    /// Other rejections do not get this response, because it would invite clients to come back that never
    /// succeed. They have closures of their own: [`on_over_capacity`](Self::on_over_capacity) and
    /// [`on_unavailable`](Self::on_unavailable).
    ///
    /// The layer completes the response:
    ///
    /// - The [`Rejection`] sets the status, unless the closure has chosen one.
    ///   A status 200 is replaced, because it is the default of responses, and because a client
    ///   reads a denial with status 200 as a success.
    /// - `Retry-After` and the rate limit [`Headers`] are added. They replace headers of the same
    ///   names.
    /// - `Cache-Control` is replaced by `no-store`. Headers with which a server addresses certain
    ///   caches, such as `CDN-Cache-Control` and `Surrogate-Control`, are removed.
    ///
    /// The closure is not called for gRPC requests, which get a gRPC status.
    ///
    /// ```
    /// # use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
    /// # let rule = Rule::new(Policy::new("p", Quota::per_minute(60))?, by::header("x-api-key"));
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), rule)
    ///     .on_denied(|rejection, _parts| match rejection.retry_after_seconds() {
    ///         Some(seconds) => format!("slow down: come back in {seconds} s"),
    ///         None => "slow down".to_owned(),
    ///     });
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn on_denied<F, R>(self, respond: F) -> Self
    where
        F: Fn(&Rejection<'_>, &Parts) -> R + Send + Sync + 'static,
        R: Into<DenialResponse>,
    {
        self.with(|decider| decider.denial_format.on_denied = Some(on_rejected(respond)))
    }

    /// Sets a closure that creates the response to a request whose cost exceeds the capacity of a policy:
    /// status 403. Such a request can never be admitted, so do not tell the client to come back.
    ///
    /// Everything else is as in [`on_denied`](Self::on_denied).
    ///
    /// ```
    /// # use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by};
    /// # let rule = Rule::new(Policy::new("p", Quota::per_minute(60))?, by::header("x-api-key"));
    /// let layer = RateLimitLayer::new(Limiter::in_memory(), rule)
    ///     .on_denied(|_, _| "slow down")
    ///     .on_over_capacity(|_, _| "this request is too large");
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    #[must_use]
    pub fn on_over_capacity<F, R>(self, respond: F) -> Self
    where
        F: Fn(&Rejection<'_>, &Parts) -> R + Send + Sync + 'static,
        R: Into<DenialResponse>,
    {
        self.with(|decider| decider.denial_format.on_over_capacity = Some(on_rejected(respond)))
    }

    /// Sets a closure that creates the response to a request that is rejected because the store cannot
    /// answer, under [`OnFailure::Deny`](crate::OnFailure::Deny): status 503.
    ///
    /// Everything else is as in [`on_denied`](Self::on_denied).
    #[must_use]
    pub fn on_unavailable<F, R>(self, respond: F) -> Self
    where
        F: Fn(&Rejection<'_>, &Parts) -> R + Send + Sync + 'static,
        R: Into<DenialResponse>,
    {
        self.with(|decider| decider.denial_format.on_unavailable = Some(on_rejected(respond)))
    }

    /// Sets a closure that is called with every [`Decision`], before the inner service is called.
    /// The decision includes the outcomes of [shadow](Rule::shadow) rules.
    #[must_use]
    pub fn on_decision<F>(self, on_decision: F) -> Self
    where
        F: Fn(&Decision<'_>, &Parts) + Send + Sync + 'static,
    {
        self.with(|decider| decider.on_decision = Some(Arc::new(on_decision)))
    }

    /// Replaces the rules and settings of a service by the rules and settings of this layer: for rules that are
    /// read again while the service runs. Requests in flight end under the rules with which they began.
    ///
    /// It costs two atomic operations, so a wrapper can call it before each request.
    ///
    /// ```
    /// use plimsoll::{Limiter, RateLimitLayer};
    /// use tower_layer::Layer;
    ///
    /// # let inner = ();
    /// let limiter = Limiter::in_memory();
    /// let mut service = RateLimitLayer::per_ip(limiter.clone(), "100/min")?.layer(inner);
    /// RateLimitLayer::per_ip(limiter, "200/min")?.update(&mut service);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    pub fn update<S>(&self, service: &mut RateLimit<S>) {
        service.set_decider(&self.0);
    }

    fn with(mut self, change: impl FnOnce(&mut Decider)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

fn on_rejected<F, R>(respond: F) -> OnRejected
where
    F: Fn(&Rejection<'_>, &Parts) -> R + Send + Sync + 'static,
    R: Into<DenialResponse>,
{
    Arc::new(move |rejection, parts| respond(rejection, parts).into())
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        self.0.announce();
        RateLimit::new(inner, Arc::clone(&self.0))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("rules", &self.0.rules)
            .field("headers", &self.0.headers)
            .finish_non_exhaustive()
    }
}

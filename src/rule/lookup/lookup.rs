//! The lookup of a row in a database.

use std::{
    error::Error as StdError,
    fmt,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Extensions, request::Parts};

use super::{
    load::{LoadFn, Settings},
    loads::Loads,
    state::LookupState,
};
use crate::{
    rule::{
        RequestFn,
        by::{ClientIp, ObservedClientIp},
        lookups::{self, AnyLookup, LookupResult},
    },
    telemetry,
};

/// A cached lookup of rows in a database, such as the rows of customers, tenants or API keys. Rules take
/// the charged [`Key`](crate::Key), the tier and the [`Quota`](crate::Quota) from a row.
///
/// A lookup has two closures. The first one returns the lookup key `Q` of a request, for example the
/// text of an API key. The second one is asynchronous and loads the row `T` of that key.
/// [`Rule::resolve`](crate::Rule::resolve) looks up the row before the rule is applied.
/// [`map`](Self::map) and [`and_then`](Self::and_then) return closures over the row, for rules. Handlers
/// read the row with [`row`](Self::row). Needs the feature `lookup`.
///
/// A request whose row is cached does not wait. The rules, layers and handlers of one request look up a
/// row once, and concurrent requests for one key share one load.
///
/// # Examples
///
/// Customers with limits of their own. Unknown API keys share the limit of their address:
///
/// ```
/// use std::{io, time::Duration};
///
/// use http::request::Parts;
/// use plimsoll::{Lookup, Policy, Quota, Rule, by::{self, Or}};
///
/// struct Customer { id: u64, limit: Quota }
///
/// # struct Database;
/// # impl Database {
/// #     async fn customer(&self, _api_key: &str) -> io::Result<Option<Customer>> { Ok(None) }
/// # }
/// # fn main() -> Result<(), plimsoll::Error> {
/// # let database = std::sync::Arc::new(Database);
/// let customers = Lookup::new(
///     |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned()),
///     move |api_key: String| {
///         let database = database.clone();
///         async move { database.customer(&api_key).await }
///     },
/// )
/// .time_to_live(Duration::from_secs(30));
///
/// let api = Policy::new("api", Quota::per_minute(10))?;
/// let rule = Rule::new(api, customers.map(|customer| customer.id).or(by::peer_ip()))
///     .quota(customers.map(|customer| customer.limit))
///     .resolve(&customers);
/// # Ok(())
/// # }
/// ```
///
/// A tier for each tenant. A request whose row cannot be loaded gets status 503:
///
/// ```
/// use plimsoll::{Key, Lookup, OnFailure, Policy, Quota, Rule, rule::Tiers};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// enum Plan { Free, Pro }
/// struct Tenant { name: String, plan: Plan }
///
/// # async fn load(_host: String) -> Result<Option<Tenant>, std::io::Error> { Ok(None) }
/// # fn main() -> Result<(), plimsoll::Error> {
/// let tenants = Lookup::new(|parts| parts.uri.host().map(str::to_owned), load);
/// let tiers = Tiers::new(Policy::new("free", Quota::per_minute(10))?)
///     .tier(Plan::Pro, Policy::new("pro", Quota::per_minute(1_000))?);
/// let rule = tiers
///     .rule(tenants.map(|tenant| tenant.plan), tenants.map(|tenant| Key::from(&tenant.name)))
///     .resolve(&tenants)
///     .on_failure(OnFailure::Deny);
/// # Ok(())
/// # }
/// ```
///
/// # The cache
///
/// - It holds at most [`max_entries`](Self::max_entries) rows. A second cache of the same size holds the
///   keys without a row for 10 s ([`unknown_for`](Self::unknown_for)), so that a client which invents
///   keys evicts no row.
/// - Keys of more than 256 bytes ([`max_key_len`](Self::max_key_len)) have no row, and are not loaded.
/// - A row is used until its [`time_to_live`](Self::time_to_live) is over. A change in the database
///   takes effect then at the latest, or at once after [`forget`](Self::forget). A row that is in use is
///   loaded again in the last quarter of this time, while requests use the old row.
///
/// # Many loads at once
///
/// A client causes one load for each key that it invents. At most [`max_loads`](Self::max_loads) loads run
/// at once. The others wait:
///
/// - Client addresses ([`client_ip`](Self::client_ip)) take turns. Of one address, the newest load is
///   started first. So a client that invents keys delays a customer by one load and not by all of its own.
/// - At most as many loads wait as can end within three quarters of their deadline, by the measured time of
///   loads, and at most 1,024. When one more comes, the address with the most waiting loads loses its oldest
///   one. If each address has one, the new one is refused.
/// - A load that waits is dropped if its request is dropped, or if it can no longer end by its deadline.
///
/// A load that is refused fails at once with the kind `overloaded`. The next request with this key
/// tries again. To bound the loads of one client, limit its address in a layer outside of this one.
///
/// # Failures
///
/// A load fails if it returns an error, panics, or does not end by its [`deadline`](Self::deadline).
///
/// - If the row has been loaded before, requests use the old row for [`max_stale`](Self::max_stale)
///   beyond its time to live. Only the requests during the first failed load wait.
/// - Otherwise [`Rule::resolve`](crate::Rule::resolve) applies the rule's
///   [`OnFailure`](crate::OnFailure).
/// - The row of a key is loaded again no sooner than 1 s after a failure, unless the load was not started.
///
/// A load runs in a task of its own, on the runtime of the request that started it. If the clients of
/// all requests that wait for it disconnect, it continues until its deadline, and the row is in the
/// cache when they try again.
///
/// With the feature `tracing`, a failure emits an event of level `WARN`, at most one a second for each
/// kind of failure. It contains the text of the error, so this text should contain no API keys. With the
/// feature `metrics`, `plimsoll_lookups_total` counts the lookups of requests by `result`: `cached`,
/// `loaded`, `stale`, `unknown`, `failed`. `plimsoll_lookup_failures_total` counts failed loads by
/// `kind`: `error`, `timed_out`, `panicked`, `interrupted`, `overloaded`.
/// `plimsoll_lookup_load_seconds` is a histogram of the times of loads.
pub struct Lookup<Q, T>(Arc<LookupState<Q, T>>);

impl<Q, T> Lookup<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    /// Creates a lookup. `key` returns the key of a request, and `load` the row of a key, or `None` if
    /// there is none.
    ///
    /// A request without a key has no row, and nothing is loaded for it.
    pub fn new<K, L, F, E>(key: K, load: L) -> Self
    where
        K: Fn(&Parts) -> Option<Q> + Send + Sync + 'static,
        L: Fn(Q) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<T>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let load: Arc<LoadFn<Q, T>> = Arc::new(move |key| {
            let load = load(key);
            Box::pin(async move { load.await.map_err(Into::into) })
        });
        Self::with(Settings::default(), Arc::new(key), load)
    }

    fn with(settings: Settings, key: RequestFn<Option<Q>>, load: Arc<LoadFn<Q, T>>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let loads = Arc::new(Loads::new(&settings, load));
        let client = ObservedClientIp::new(settings.client.clone());
        Self(Arc::new(LookupState { id, settings, client, key, loads }))
    }

    /// Returns a lookup with other settings and an empty cache.
    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        Self::with(settings, Arc::clone(&self.0.key), self.0.loads.load_fn())
    }

    /// Sets the largest number of cached rows. The default is 10,000. The cache of keys without a row has
    /// the same size.
    ///
    /// This method and the other settings return a lookup that shares nothing with existing clones. So
    /// call them before the lookup is cloned or passed to rules.
    ///
    /// # Panics
    ///
    /// Panics if `max_entries` is 0.
    #[must_use]
    pub fn max_entries(self, max_entries: usize) -> Self {
        assert!(max_entries > 0, "a cache of 0 rows: allowed is 1 and more");
        self.set(|settings| settings.max_entries = max_entries)
    }

    /// Sets the time for which a row is used. The default is 60 s.
    #[must_use]
    pub fn time_to_live(self, time: Duration) -> Self {
        self.set(|settings| settings.time_to_live = time)
    }

    /// Sets the time for which a key without a row is not loaded again. It is at most the
    /// [`time_to_live`](Self::time_to_live). The default is 10 s.
    #[must_use]
    pub fn unknown_for(self, time: Duration) -> Self {
        self.set(|settings| settings.unknown_for = time)
    }

    /// Sets the time for which a row is used beyond its [`time_to_live`](Self::time_to_live), while it
    /// cannot be loaded. The default is 5 minutes.
    #[must_use]
    pub fn max_stale(self, time: Duration) -> Self {
        self.set(|settings| settings.max_stale = time)
    }

    /// Sets the longest time of a load, including the wait for its turn. It is also the longest time for
    /// which a request waits for a row. The default is 200 ms.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set(|settings| settings.deadline = deadline)
    }

    /// Sets the largest number of loads that run at once. The default is 32. It should not exceed the
    /// number of database connections for loads.
    ///
    /// # Panics
    ///
    /// Panics if `max_loads` is 0 or above 1,024.
    #[must_use]
    pub fn max_loads(self, max_loads: usize) -> Self {
        assert!((1..=1_024).contains(&max_loads), "{max_loads} loads: allowed is 1 to 1024");
        self.set(|settings| settings.max_loads = max_loads)
    }

    /// Sets the largest length of a key in bytes. The default is 256. A longer key has no row, and nothing is
    /// loaded for it. So requests with long keys do not fill the memory.
    ///
    /// The bytes of texts and slices in the key count, as its [`Hash`] implementation passes them to a hasher.
    #[must_use]
    pub fn max_key_len(self, bytes: usize) -> Self {
        self.set(|settings| settings.max_key_len = bytes)
    }

    /// Sets the source of the client's address, by which loads take turns. The default is
    /// [`ClientIp::peer`]. Behind a proxy, set the source that [`by::client_ip`](crate::by::client_ip) has.
    /// Otherwise, all clients are one, and a warning is logged once (feature `tracing`).
    #[must_use]
    pub fn client_ip(self, source: ClientIp) -> Self {
        self.set(|settings| settings.client = source)
    }

    /// Returns a closure over the row of a request, for [`Rule::new`](crate::Rule::new),
    /// [`Rule::quota`](crate::Rule::quota) or [`Tiers::rule`](crate::rule::Tiers::rule). It returns
    /// `None` for a request without a row, or if the row could not be loaded.
    pub fn map<F, U>(&self, map: F) -> impl Fn(&Parts) -> Option<U> + Clone + Send + Sync + 'static
    where
        F: Fn(&T) -> U + Clone + Send + Sync + 'static,
        U: 'static,
    {
        self.and_then(move |row| Some(map(row)))
    }

    /// Returns a closure like [`map`](Self::map), for a closure that returns an `Option` itself.
    pub fn and_then<F, U>(
        &self,
        and_then: F,
    ) -> impl Fn(&Parts) -> Option<U> + Clone + Send + Sync + 'static
    where
        F: Fn(&T) -> Option<U> + Clone + Send + Sync + 'static,
        U: 'static,
    {
        let id = self.0.id;
        move |parts: &Parts| match lookups::result(&parts.extensions, id) {
            Some(LookupResult::Found(row)) => and_then(row.downcast_ref::<T>()?),
            Some(LookupResult::Unknown | LookupResult::Failed) => None,
            None => {
                telemetry::lookup_missing();
                None
            }
        }
    }

    /// Returns the row of the request with these extensions, for handlers. It is `None` if the request
    /// has no row, or if no rule that applies to it [resolves](crate::Rule::resolve) this lookup.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use axum::{extract::{Request, State}, http::StatusCode};
    /// use plimsoll::Lookup;
    ///
    /// struct Customer { name: String }
    ///
    /// async fn hello(
    ///     State(customers): State<Lookup<String, Customer>>,
    ///     request: Request,
    /// ) -> Result<String, StatusCode> {
    ///     let customer = customers.row(request.extensions()).ok_or(StatusCode::UNAUTHORIZED)?;
    ///     Ok(format!("hello {}", customer.name))
    /// }
    /// ```
    #[must_use]
    pub fn row(&self, extensions: &Extensions) -> Option<Arc<T>> {
        match lookups::result(extensions, self.0.id)? {
            LookupResult::Found(row) => Arc::clone(row).downcast().ok(),
            LookupResult::Unknown | LookupResult::Failed => None,
        }
    }

    /// Removes the row of a key from the cache of this process, for example after the application has
    /// changed it. The next request loads it again.
    pub fn forget(&self, key: &Q) {
        self.0.loads.forget(key);
    }

    pub(in crate::rule) fn erased(&self) -> Arc<dyn AnyLookup> {
        self.0.clone()
    }
}

impl<Q, T> Clone for Lookup<Q, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q, T> fmt::Debug for Lookup<Q, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

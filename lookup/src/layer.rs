//! The layer that looks up rows.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use http::request::Parts;
use tower_layer::Layer;

use crate::{
    rows::{LoadFn, Rows, Settings},
    service::LookupService,
    telemetry,
};

pub(crate) type KeyFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// A tower [`Layer`] that loads the row of a request from a database, and caches it.
///
/// A layer has two closures. The first one returns the lookup key of a request, for example the text of an API
/// key. The second one is asynchronous and loads the row `T` of that key. The layer leaves the row as an
/// [`Arc<T>`] in the extensions of the request, where the rules of inner layers and handlers read it with
/// [`row`](crate::row). Two layers of one request need two types of rows.
///
/// # Examples
///
/// Customers with limits of their own. Unknown API keys share the limit of their address:
///
/// ```
/// use std::{io, time::Duration};
///
/// use http::request::Parts;
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by::{self, Or}};
/// use plimsoll_lookup::{LookupLayer, row};
///
/// struct Customer { id: u64, limit: Option<Quota> }
///
/// # struct Database;
/// # impl Database {
/// #     async fn customer(&self, _api_key: &str) -> io::Result<Option<Customer>> { Ok(None) }
/// # }
/// # fn main() -> Result<(), plimsoll::Error> {
/// # let database = std::sync::Arc::new(Database);
/// let customers = LookupLayer::new(
///     |parts: &Parts| Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned()),
///     move |api_key: String| {
///         let database = database.clone();
///         async move { database.customer(&api_key).await }
///     },
/// )
/// .time_to_live(Duration::from_secs(30));
///
/// let id = |parts: &Parts| Some(row::<Customer>(&parts.extensions)?.id);
/// let api = Policy::new("api", Quota::per_minute(10))?;
/// let rule = Rule::new(api, id.or(by::peer_ip()))
///     .quota(|parts: &Parts| row::<Customer>(&parts.extensions)?.limit);
///
/// // The lookup is the outer layer.
/// let stack = tower::ServiceBuilder::new()
///     .layer(customers)
///     .layer(RateLimitLayer::new(Limiter::in_memory(), rule));
/// # Ok(())
/// # }
/// ```
///
/// A request whose row cannot be loaded gets status 503:
///
/// ```
/// # use plimsoll_lookup::LookupLayer;
/// # async fn load(_host: String) -> Result<Option<u64>, std::io::Error> { Ok(None) }
/// let tenants = LookupLayer::new(|parts| parts.uri.host().map(str::to_owned), load).deny_on_failure();
/// ```
pub struct LookupLayer<T> {
    pub(crate) key: Arc<KeyFn>,
    pub(crate) rows: Arc<Rows<T>>,
}

impl<T: Send + Sync + 'static> LookupLayer<T> {
    /// Creates a layer. `key` returns the key of a request, and `load` the row of a key, or `None` if there is
    /// none.
    ///
    /// A request without a key has no row, and nothing is loaded for it.
    pub fn new<K, L, F, E>(key: K, load: L) -> Self
    where
        K: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
        L: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<T>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        telemetry::describe();
        let load: Arc<LoadFn<T>> = Arc::new(move |key| {
            let load = load(key);
            Box::pin(async move { load.await.map_err(Into::into) })
        });
        Self { key: Arc::new(key), rows: Arc::new(Rows::new(Settings::default(), load)) }
    }

    /// Returns a layer with other settings and an empty cache.
    fn set(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.rows.settings;
        change(&mut settings);
        Self { key: self.key, rows: Arc::new(Rows::new(settings, Arc::clone(&self.rows.load))) }
    }

    /// Sets the largest number of cached rows. The default is 10,000. A second cache of the same size has the
    /// keys without a row, so that invented keys evict no row.
    ///
    /// This method and the other settings return a layer that shares nothing with existing clones. So call them
    /// before the layer is cloned.
    ///
    /// # Panics
    ///
    /// Panics if `max_entries` is 0.
    #[must_use]
    pub fn max_entries(self, max_entries: usize) -> Self {
        assert!(max_entries > 0, "a cache of 0 rows: allowed is 1 and more");
        self.set(|settings| settings.max_entries = max_entries)
    }

    /// Sets the largest number of bytes of a key. A longer key has no row, and is not loaded. The default is 256.
    #[must_use]
    pub fn max_key_len(self, max_key_len: usize) -> Self {
        self.set(|settings| settings.max_key_len = max_key_len)
    }

    /// Sets the time after which a row is loaded again. The default is 60 s. One request then loads the row, and
    /// the others use the old one meanwhile.
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

    /// Sets the time for which a row is used beyond its [`time_to_live`](Self::time_to_live), while it cannot be
    /// loaded. The default is 5 minutes.
    #[must_use]
    pub fn max_stale(self, time: Duration) -> Self {
        self.set(|settings| settings.max_stale = time)
    }

    /// Sets the longest time for which a request waits for its row, including the wait for a place. The default is
    /// 200 ms.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set(|settings| settings.deadline = deadline)
    }

    /// Sets the largest number of loads that run at once. The default is 32. It should not exceed the number of
    /// connections to the database. Further loads wait in their order, for half of the
    /// [`deadline`](Self::deadline).
    ///
    /// # Panics
    ///
    /// Panics if `max_loads` is not within 1 to 1024.
    #[must_use]
    pub fn max_loads(self, max_loads: usize) -> Self {
        assert!((1..=1024).contains(&max_loads), "{max_loads} loads: allowed is 1 to 1024");
        self.set(|settings| settings.max_loads = max_loads)
    }

    /// Answers status 503 to a request whose row cannot be loaded. Without this setting it goes on without a row,
    /// with the mark [`LookupFailed`](crate::LookupFailed) in its extensions.
    #[must_use]
    pub fn deny_on_failure(self) -> Self {
        self.set(|settings| settings.denies_on_failure = true)
    }

    /// Forgets the row of a key, so that the next request loads it. A load that is running may still store the
    /// row that it has read.
    pub fn forget(&self, key: &str) {
        self.rows.forget(key);
    }
}

impl<S, T> Layer<S> for LookupLayer<T> {
    type Service = LookupService<S, T>;

    fn layer(&self, inner: S) -> Self::Service {
        LookupService { inner, layer: self.clone() }
    }
}

impl<T> Clone for LookupLayer<T> {
    fn clone(&self) -> Self {
        Self { key: Arc::clone(&self.key), rows: Arc::clone(&self.rows) }
    }
}

impl<T> fmt::Debug for LookupLayer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupLayer").field("settings", &self.rows.settings).finish_non_exhaustive()
    }
}

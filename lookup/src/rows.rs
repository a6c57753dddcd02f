//! The cache of rows, and their loads.

use std::{
    error::Error as StdError,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quick_cache::sync::Cache;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::telemetry;

/// After a load of a cached row, the row is loaded again no sooner than this.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

type BoxError = Box<dyn StdError + Send + Sync>;
type LoadFuture<T> = Pin<Box<dyn Future<Output = Result<Option<T>, BoxError>> + Send>>;
pub(crate) type LoadFn<T> = dyn Fn(String) -> LoadFuture<T> + Send + Sync;

/// The settings of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) max_entries: usize,
    pub(crate) max_key_len: usize,
    pub(crate) time_to_live: Duration,
    pub(crate) unknown_for: Duration,
    pub(crate) max_stale: Duration,
    pub(crate) deadline: Duration,
    pub(crate) max_loads: usize,
    pub(crate) denies_on_failure: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_entries: 10_000,
            max_key_len: 256,
            time_to_live: Duration::from_secs(60),
            unknown_for: Duration::from_secs(10),
            max_stale: Duration::from_secs(300),
            deadline: Duration::from_millis(200),
            max_loads: 32,
            denies_on_failure: false,
        }
    }
}

/// The rows of a layer.
pub(crate) struct Rows<T> {
    pub(crate) settings: Settings,
    pub(crate) load: Arc<LoadFn<T>>,
    rows: Cache<String, Arc<Entry<T>>>,
    /// The keys without a row, and when that was found. They have a cache of their own, so that invented keys
    /// evict no row.
    absences: Cache<String, Instant>,
    /// The places of the loads that run.
    places: Semaphore,
}

struct Entry<T> {
    row: Arc<T>,
    loaded: Instant,
    /// The last time at which a request began to load the row again.
    tried: Mutex<Option<Instant>>,
}

/// The result of a lookup.
pub(crate) enum Found<T> {
    Row(Arc<T>),
    /// The key has no row.
    Unknown,
    /// The row could not be loaded.
    Failed,
}

/// The row of a key in the cache.
pub(crate) enum Cached<T> {
    Found(Found<T>),
    /// The row has to be loaded. If that fails, the old row is used, if there is one.
    Due(Option<Arc<T>>),
}

impl<T: Send + Sync + 'static> Rows<T> {
    pub(crate) fn new(settings: Settings, load: Arc<LoadFn<T>>) -> Self {
        Self {
            settings,
            load,
            rows: Cache::new(settings.max_entries),
            absences: Cache::new(settings.max_entries),
            places: Semaphore::new(settings.max_loads),
        }
    }

    /// Returns the row of a key as the cache has it. Of the requests that find an old row, one loads it again,
    /// and the others use it.
    pub(crate) fn get(&self, key: &str) -> Cached<T> {
        let Settings { time_to_live, max_stale, .. } = self.settings;
        let now = Instant::now();
        let Some(entry) = self.rows.get(key) else {
            if self.is_absent(key, now) {
                telemetry::looked_up("unknown");
                return Cached::Found(Found::Unknown);
            }
            return Cached::Due(None);
        };
        let age = now.saturating_duration_since(entry.loaded);
        let row = Arc::clone(&entry.row);
        if age < time_to_live {
            telemetry::looked_up("cached");
            Cached::Found(Found::Row(row))
        } else if age >= time_to_live.saturating_add(max_stale) {
            self.rows.remove_if(key, |other| Arc::ptr_eq(other, &entry));
            Cached::Due(None)
        } else if self.begin_retry(&entry, now) {
            Cached::Due(Some(row))
        } else {
            telemetry::looked_up("stale");
            Cached::Found(Found::Row(row))
        }
    }

    /// Loads the row of a key, or waits for the request that loads it, until the deadline.
    pub(crate) async fn load(&self, key: &str, old: Option<Arc<T>>) -> Found<T> {
        let until = Instant::now().checked_add(self.settings.deadline / 2);
        let load = async {
            match &old {
                Some(_) => self.reload(key, until).await,
                None => self.load_once(key, until).await,
            }
        };
        let loaded = timeout(self.settings.deadline, load).await.unwrap_or_else(|_| Err(late()));
        let (result, found) = match (loaded, old) {
            (Ok(Some(row)), _) => ("loaded", Found::Row(row)),
            (Ok(None), _) => ("unknown", Found::Unknown),
            (Err(error), old) => {
                telemetry::load_failed(&error);
                old.map_or(("failed", Found::Failed), |old| ("stale", Found::Row(old)))
            }
        };
        telemetry::looked_up(result);
        found
    }

    /// Forgets the row of a key.
    pub(crate) fn forget(&self, key: &str) {
        self.rows.remove(key);
        self.absences.remove(key);
    }

    /// Loads a row that is not in the cache. The cache lets one request a key do so at a time.
    async fn load_once(
        &self,
        key: &str,
        until: Option<Instant>,
    ) -> Result<Option<Arc<T>>, BoxError> {
        let guard = match self.rows.get_value_or_guard_async(key).await {
            Ok(entry) => return Ok(Some(Arc::clone(&entry.row))),
            Err(guard) => guard,
        };
        if self.is_absent(key, Instant::now()) {
            return Ok(None);
        }
        let entry = self.run(key, until).await?;
        if let Some(entry) = &entry {
            // An error means that the key was forgotten meanwhile, so the row is not kept.
            let _ = guard.insert(Arc::clone(entry));
        }
        Ok(entry.map(|entry| Arc::clone(&entry.row)))
    }

    async fn reload(&self, key: &str, until: Option<Instant>) -> Result<Option<Arc<T>>, BoxError> {
        let entry = self.run(key, until).await?;
        match &entry {
            Some(entry) => self.rows.insert(key.to_owned(), Arc::clone(entry)),
            None => drop(self.rows.remove(key)),
        }
        Ok(entry.map(|entry| Arc::clone(&entry.row)))
    }

    /// Runs a load when it has a place. It waits `until` half of the deadline, so that it can end in the other half.
    async fn run(
        &self,
        key: &str,
        until: Option<Instant>,
    ) -> Result<Option<Arc<Entry<T>>>, BoxError> {
        let place = self.places.acquire();
        let _place = match until {
            Some(until) => timeout_at(until, place).await.map_err(|_| late())??,
            None => place.await?,
        };
        let row = (self.load)(key.to_owned()).await?;
        let loaded = Instant::now();
        if row.is_none() {
            self.absences.insert(key.to_owned(), loaded);
        }
        Ok(row.map(|row| Arc::new(Entry { row: Arc::new(row), loaded, tried: Mutex::new(None) })))
    }

    fn is_absent(&self, key: &str, now: Instant) -> bool {
        let Settings { unknown_for, time_to_live, .. } = self.settings;
        let found = self.absences.get(key);
        found.is_some_and(|found| {
            now.saturating_duration_since(found) < unknown_for.min(time_to_live)
        })
    }

    /// Returns whether the caller loads an old row again.
    fn begin_retry(&self, entry: &Entry<T>, now: Instant) -> bool {
        let mut tried = entry.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = RETRY_INTERVAL.max(self.settings.deadline);
        let is_due = tried.is_none_or(|tried| now.saturating_duration_since(tried) >= pause);
        if is_due {
            *tried = Some(now);
        }
        is_due
    }
}

fn late() -> BoxError {
    "the row was not loaded by the deadline".into()
}

//! The start of a lookup: from the cache, or by a load.

use std::{hash::Hash, sync::Arc};

use http::request::Parts;
use tokio::time::Instant;

use super::{
    loads::{Loaded, Loads},
    request::{AnyLookup, LookupResult, Started},
    rows::Cached,
    settings::Settings,
};
use crate::{rule::RequestFn, telemetry};

/// The state of a lookup, which its clones and the rules that resolve it share.
pub(super) struct LookupState<Q, T> {
    pub(super) id: u64,
    pub(super) settings: Settings,
    pub(super) key: RequestFn<Option<Q>>,
    pub(super) loads: Arc<Loads<Q, T>>,
}

impl<Q, T> AnyLookup for LookupState<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn id(&self) -> u64 {
        self.id
    }

    fn start(&self, parts: &Parts) -> Started {
        let Some(key) = (self.key)(parts) else {
            return ready("unknown", LookupResult::Unknown);
        };
        let (row, is_due, result) = match self.loads.rows.get(&key, Instant::now()) {
            Cached::Row { row, is_due } => (row, is_due, "cached"),
            Cached::Stale { row, is_due } => (row, is_due, "stale"),
            Cached::Unknown => return ready("unknown", LookupResult::Unknown),
            Cached::Failed => return ready("failed", LookupResult::Failed),
            Cached::Expired { row } => return self.load(&key, Some(row)),
            Cached::Missing => return self.load(&key, None),
        };
        if is_due {
            // This request does not wait for the load. If no load can be started, it still has the row.
            let _ = self.loads.start_or_join(&key);
        }
        ready(result, LookupResult::Found(row))
    }
}

impl<Q, T> LookupState<Q, T>
where
    Q: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    /// Loads a row. If that fails, the result is the row that has expired, if there is one.
    fn load(&self, key: &Q, expired: Option<Arc<T>>) -> Started {
        match self.loads.start_or_join(key) {
            Ok(receiver) => {
                let load = Arc::clone(&self.loads).wait(receiver);
                Started::Loading(Box::pin(async move { loaded(load.await, expired) }))
            }
            Err(failure) => {
                telemetry::lookup_failed(failure.name(), None);
                Started::Ready(loaded(Err(failure), expired))
            }
        }
    }
}

/// Returns the result of a lookup that has loaded its row.
fn loaded<T: Send + Sync + 'static>(loaded: Loaded<T>, expired: Option<Arc<T>>) -> LookupResult {
    let (name, result) = match (loaded, expired) {
        (Ok(Some(row)), _) => ("loaded", LookupResult::Found(row)),
        (Ok(None), _) => ("unknown", LookupResult::Unknown),
        (Err(_), Some(row)) => ("stale", LookupResult::Found(row)),
        (Err(_), None) => ("failed", LookupResult::Failed),
    };
    telemetry::looked_up(name);
    result
}

fn ready(name: &'static str, result: LookupResult) -> Started {
    telemetry::looked_up(name);
    Started::Ready(result)
}

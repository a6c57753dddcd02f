//! The start of a lookup: from the cache, or by a load.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use http::request::Parts;
use tokio::time::Instant;

use super::{
    load::{Loaded, Settings},
    loads::Loads,
    queue::Client,
    rows::Cached,
};
use crate::{
    key::Identity,
    rule::{
        RequestFn,
        by::ObservedClientIp,
        lookups::{AnyLookup, LookupResult, Started},
    },
    telemetry,
};

/// The state of a lookup, which its clones and the rules that resolve it share.
pub(super) struct LookupState<Q, T> {
    pub(super) id: u64,
    pub(super) settings: Settings,
    /// The source of [`Settings::client`].
    pub(super) client: ObservedClientIp,
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
        let key = (self.key)(parts).filter(|key| KeyLength::of(key) <= self.settings.max_key_len);
        let Some(key) = key else { return ready("unknown", LookupResult::Unknown) };
        let (row, is_due, result) = match self.loads.rows.get(&key, Instant::now()) {
            Cached::Row { row, is_due } => (row, is_due, "cached"),
            Cached::Stale { row, is_due } => (row, is_due, "stale"),
            Cached::Unknown => return ready("unknown", LookupResult::Unknown),
            Cached::Failed => return ready("failed", LookupResult::Failed),
            Cached::Expired { row } => return self.load(&key, parts, Some(row)),
            Cached::Missing => return self.load(&key, parts, None),
        };
        if is_due {
            self.loads.refresh(&key, self.client(parts));
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
    fn load(&self, key: &Q, parts: &Parts, expired: Option<Arc<T>>) -> Started {
        let load = self.loads.load(key, self.client(parts));
        Started::Loading(Box::pin(async move { loaded(load.await, expired) }))
    }

    fn client(&self, parts: &Parts) -> Client {
        let client = self.client.find(parts);
        if client.is_none() && matches!(self.client.without_peer(), Identity::NoPeer) {
            telemetry::peer_missing();
        }
        client
    }
}

/// Measures a key: the bytes of its text and slices, whose length a client chooses.
struct KeyLength(usize);

impl KeyLength {
    fn of(key: &impl Hash) -> usize {
        let mut length = Self(0);
        key.hash(&mut length);
        length.0
    }
}

impl Hasher for KeyLength {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.saturating_add(bytes.len());
    }

    /// Ignores the end of a text.
    fn write_u8(&mut self, _: u8) {}

    /// Ignores the length of a slice.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        0
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

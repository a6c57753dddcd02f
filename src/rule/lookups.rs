//! The lookups of one request, and their results in its extensions. Without the feature `lookup`, there
//! are none.

use std::{
    any::Any,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Extensions, request::Parts};
use smallvec::SmallVec;

/// A lookup without the types of its key and its row.
pub(super) trait AnyLookup: Send + Sync {
    /// Returns a number that no other lookup has.
    fn id(&self) -> u64;

    /// Looks up the row of a request: at once if it is cached, or with a load to wait for.
    fn start(&self, parts: &Parts) -> Started;
}

/// The beginning of a lookup.
pub(super) enum Started {
    Ready(LookupResult),
    /// A load is running.
    Loading(LookupFuture),
}

/// The future of a lookup that waits for a load.
pub(super) type LookupFuture = Pin<Box<dyn Future<Output = LookupResult> + Send>>;

/// The result of a lookup for one request.
#[derive(Clone)]
pub(super) enum LookupResult {
    /// The row.
    Found(Arc<dyn Any + Send + Sync>),
    /// The request has no key, or the key has no row.
    Unknown,
    /// The row could not be loaded.
    Failed,
}

/// The results of the lookups of a request, by the number of the lookup. Inner layers find them in the
/// extensions of the request.
#[derive(Clone, Default)]
struct LookupResults(SmallVec<[(u64, LookupResult); 1]>);

/// Returns the result of a lookup for the request with these extensions, if it was looked up.
pub(super) fn result(extensions: &Extensions, id: u64) -> Option<&LookupResult> {
    let LookupResults(results) = extensions.get()?;
    results.iter().find_map(|(other, result)| (*other == id).then_some(result))
}

/// The lookups that a rule needs.
#[derive(Clone, Default)]
pub(crate) struct Lookups(Vec<Arc<dyn AnyLookup>>);

impl Lookups {
    pub(super) fn add(&mut self, lookup: Arc<dyn AnyLookup>) {
        if self.0.iter().all(|other| other.id() != lookup.id()) {
            self.0.push(lookup);
        }
    }

    /// Returns whether the rule needs no lookup.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts the lookups that were not started for this request before, by another rule or by an outer
    /// layer.
    pub(crate) fn start(&self, parts: &mut Parts, pending: &mut PendingLookups) {
        for lookup in &self.0 {
            let id = lookup.id();
            let is_loading = pending.0.iter().any(|(other, _)| *other == id);
            if is_loading || result(&parts.extensions, id).is_some() {
                continue;
            }
            match lookup.start(parts) {
                Started::Ready(result) => insert(parts, id, result),
                Started::Loading(load) => pending.0.push((id, load)),
            }
        }
    }

    /// Returns whether a row of this request could not be loaded.
    #[inline(never)]
    pub(crate) fn have_failed(&self, parts: &Parts) -> bool {
        let failed = |lookup: &Arc<dyn AnyLookup>| {
            matches!(result(&parts.extensions, lookup.id()), Some(LookupResult::Failed))
        };
        self.0.iter().any(failed)
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lookups", self.0.len())
    }
}

/// The lookups of a request that wait for loads.
#[derive(Default)]
pub(crate) struct PendingLookups(Vec<(u64, LookupFuture)>);

impl PendingLookups {
    /// Returns whether no load is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Polls the loads. When all have ended, their results are in the extensions of the request.
    pub(crate) fn poll(&mut self, parts: &mut Parts, cx: &mut Context<'_>) -> Poll<()> {
        let mut index = 0;
        while let Some((id, load)) = self.0.get_mut(index) {
            match load.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    insert(parts, *id, result);
                    drop(self.0.swap_remove(index));
                }
                Poll::Pending => index += 1,
            }
        }
        if self.0.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn insert(parts: &mut Parts, id: u64, result: LookupResult) {
    parts.extensions.get_or_insert_default::<LookupResults>().0.push((id, result));
}

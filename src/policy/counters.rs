//! The counters of a policy.

#[cfg(feature = "metrics")]
use metrics::{Counter, Level, Metadata, Recorder};

/// The names of the counters of one policy, made once so that counting does not allocate. Without the
/// feature `metrics` there are none.
#[derive(Debug)]
pub(crate) struct Counters(#[cfg(feature = "metrics")] [metrics::Key; 5]);

#[cfg(feature = "metrics")]
impl Counters {
    /// The values of the label `outcome`: the names of [`OutcomeKind`](crate::OutcomeKind), in the order of
    /// its variants.
    const OUTCOMES: [&str; 5] = ["allowed", "denied", "not_charged", "would_allow", "would_deny"];

    /// Creates the names for the policy `name`, and [starts](Self::start) its counters.
    pub(crate) fn new(name: &str) -> Self {
        let counters = Self(Self::OUTCOMES.map(|outcome| {
            let labels = [("policy", name.to_owned()), ("outcome", outcome.to_owned())];
            metrics::Key::from_parts("plimsoll_decisions_total", &labels)
        }));
        counters.start();
        counters
    }

    /// Starts the counters at 0, unless they exist or there is no recorder yet. Without a series at 0, a
    /// query cannot tell a policy that is never used from one that does not exist.
    pub(crate) fn start(&self) {
        metrics::with_recorder(|recorder| {
            let kinds = 0..Self::OUTCOMES.len();
            kinds.for_each(|kind| self.register(recorder, kind).increment(0));
        });
    }

    /// Returns the counter of an outcome, by the number of its kind.
    #[inline]
    pub(crate) fn register(&self, recorder: &dyn Recorder, kind: usize) -> Counter {
        static METADATA: Metadata<'static> =
            Metadata::new("plimsoll", Level::INFO, Some("plimsoll"));
        recorder.register_counter(&self.0[kind], &METADATA)
    }
}

#[cfg(not(feature = "metrics"))]
impl Counters {
    pub(crate) fn new(_: &str) -> Self {
        Self()
    }

    pub(crate) fn start(&self) {}
}

//! The counters of a policy.

#[cfg(feature = "metrics")]
use metrics::Key;

/// The names of the counters of one policy, made once so that counting does not allocate. Without the
/// feature `metrics` there are none.
#[derive(Debug)]
pub(crate) struct Counters(#[cfg(feature = "metrics")] [Key; 4]);

#[cfg(feature = "metrics")]
impl Counters {
    /// The values of the label `outcome`, in the order of [`keys`](Self::keys).
    const OUTCOMES: [&str; 4] = ["allowed", "denied", "would_allow", "would_deny"];

    /// Creates the names for the policy `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self(Self::OUTCOMES.map(|outcome| {
            let labels = [("policy", name.to_owned()), ("outcome", outcome.to_owned())];
            Key::from_parts("tollgate_decisions_total", &labels)
        }))
    }

    /// Returns the names by outcome: allowed, denied, would allow, would deny.
    pub(crate) fn keys(&self) -> &[Key; 4] {
        &self.0
    }
}

#[cfg(not(feature = "metrics"))]
impl Counters {
    pub(crate) fn new(_: &str) -> Self {
        Self()
    }
}

//! The keys that the benchmarks charge.

/// Distinct keys of 24 bytes, as long as many account names and API keys are.
pub(crate) fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("account-{number:016x}")).collect()
}

/// Walks through keys in an order that caches cannot foresee, each as often as any other.
#[derive(Debug)]
pub(crate) struct Walk<'k, K = String> {
    keys: &'k [K],
    at: usize,
}

impl<'k, K> Walk<'k, K> {
    pub(crate) fn new(keys: &'k [K]) -> Self {
        Self { keys, at: 0 }
    }

    /// The next key.
    #[inline]
    pub(crate) fn step(&mut self) -> &'k K {
        // A prime step visits every key of a number that it does not divide.
        self.at = (self.at + 7_368_787) % self.keys.len();
        &self.keys[self.at]
    }
}

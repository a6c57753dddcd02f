//! The seam through which a test sets the time of a store.
//!
//! Without the feature `test-util` there is no time to set, so a service in production always uses
//! the time of the server.

#[cfg(feature = "test-util")]
mod seam {
    use std::sync::Arc;

    use crate::clock::Clock;

    /// The clock of a test, if one is set.
    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct TestTime(pub(in super::super) Option<Arc<dyn Clock>>);

    impl TestTime {
        /// Returns the time in microseconds since the Unix epoch, or `None` for the server's time.
        pub(in super::super) fn now(&self) -> Option<u64> {
            self.0.as_ref().map(|clock| clock.now().as_micros())
        }
    }
}

#[cfg(not(feature = "test-util"))]
mod seam {
    /// The seam without a clock, which always leaves the time to the server.
    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct TestTime(());

    impl TestTime {
        /// Returns `None`, which stands for the time of the server.
        #[expect(clippy::unused_self, reason = "the other seam needs it")]
        pub(in super::super) fn now(&self) -> Option<u64> {
            None
        }
    }
}

pub(super) use seam::TestTime;

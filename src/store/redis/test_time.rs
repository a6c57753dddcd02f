//! The one seam through which a test sets the time. Without the feature `test-util` there is
//! nothing to set, so production cannot pass a time by accident.

#[cfg(feature = "test-util")]
mod seam {
    use std::sync::Arc;

    use crate::clock::Clock;

    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct TestTime(pub(in super::super) Option<Arc<dyn Clock>>);

    impl TestTime {
        pub(in super::super) fn now(&self) -> Option<u64> {
            self.0.as_ref().map(|clock| clock.now().as_micros())
        }
    }
}

#[cfg(not(feature = "test-util"))]
mod seam {
    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct TestTime;

    impl TestTime {
        #[expect(clippy::unused_self, reason = "the other seam needs it")]
        pub(in super::super) fn now(&self) -> Option<u64> {
            None
        }
    }
}

pub(super) use seam::TestTime;

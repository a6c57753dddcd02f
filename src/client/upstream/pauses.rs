//! The pauses that an upstream service has asked for.

use std::{collections::HashMap, sync::MutexGuard, time::Duration};

use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::headers::Pause;
use crate::{
    error::Error, key::Key, limiter::require_timer, policy::Charges, quota::Quota, sync::Mutex,
};

/// The policies and keys that a call is charged to, in order. Shadow charges are left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::client) struct CallId(SmallVec<[(u64, Key); 1]>);

impl CallId {
    pub(in crate::client) fn new(charges: &Charges<'_>) -> Self {
        let enforced = charges.iter().filter(|charge| charge.is_live());
        let mut ids: SmallVec<_> =
            enforced.map(|charge| (charge.policy().id(), *charge.key())).collect();
        ids.sort_unstable();
        Self(ids)
    }
}

/// The reason why a call is not made: it is paused for this time, or the limiter cannot decide.
#[derive(Debug)]
pub(in crate::client) enum NotReady {
    Paused(Duration),
    Error(Error),
}

impl From<Error> for NotReady {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The first pause after a denial without a time. Each further one of a series is twice as long.
const FIRST_UNSTATED_PAUSE: Duration = Duration::from_secs(1);
/// The number of times that the pause is doubled: up to 64 s.
const MAX_DOUBLINGS: u32 = 6;

/// The pause of some calls.
#[derive(Debug, Clone, Copy)]
struct CallPause {
    end: Instant,
    /// The number of times that the next pause is doubled if a denial states no time.
    doublings: u32,
}

/// The pauses, by the calls that they apply to.
///
/// An entry whose pause has ended is removed by the next response that asks for no pause, or when the table is
/// full. No timer is needed.
#[derive(Debug, Default)]
pub(in crate::client) struct Pauses(Mutex<HashMap<CallId, CallPause>>);

impl Pauses {
    /// The number of pauses that are kept. In a full table, the one that ends first is forgotten.
    const CAPACITY: usize = 1_024;

    /// Waits for the end of the pause of these calls.
    ///
    /// # Errors
    ///
    /// Returns [`NotReady::Paused`] at once if the pause ends after `deadline`.
    pub(in crate::client) async fn wait(
        &self,
        call: &CallId,
        deadline: Instant,
    ) -> Result<(), NotReady> {
        // An answer to a call that was made before may extend the pause.
        while let Some(end) = self.end(call) {
            if end > deadline {
                return Err(NotReady::Paused(end.saturating_duration_since(Instant::now())));
            }
            require_timer()?;
            sleep_until(end).await;
        }
        Ok(())
    }

    /// Returns the end of the pause of these calls, if it has not passed.
    fn end(&self, call: &CallId) -> Option<Instant> {
        let end = self.lock().get(call)?.end;
        Some(end).filter(|end| *end > Instant::now())
    }

    /// Pauses these calls as their response asks for, for at most `max`, or until their present pause ends if
    /// that is later.
    pub(in crate::client) fn answered(&self, call: &CallId, asked: Option<Pause>, max: Duration) {
        if call.0.is_empty() || max.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut pauses = self.lock();
        let known = pauses.get(call).copied();
        let running = known.filter(|known| known.end > now);
        let (pause, doublings) = match (asked, running) {
            (Some(Pause::For(pause)), _) => (pause, 0),
            // The call was made before the pause began, so this denial is not a further one.
            (_, Some(_)) => return,
            (Some(Pause::Unstated), None) => {
                let doublings = known.map_or(0, |known| known.doublings);
                (FIRST_UNSTATED_PAUSE * 2_u32.pow(doublings), MAX_DOUBLINGS.min(doublings + 1))
            }
            (None, None) => {
                pauses.remove(call);
                return;
            }
        };
        // A pause whose end the clock cannot represent lasts for the longest window.
        let end = now.checked_add(pause.min(max)).unwrap_or(now + Quota::MAX_WINDOW);
        let end = running.map_or(end, |running| running.end.max(end));
        if pauses.len() >= Self::CAPACITY && known.is_none() {
            pauses.retain(|_, pause| pause.end > now);
            let first =
                pauses.iter().min_by_key(|(_, pause)| pause.end).map(|(call, _)| call.clone());
            if let Some(first) = first.filter(|_| pauses.len() >= Self::CAPACITY) {
                pauses.remove(&first);
            }
        }
        pauses.insert(call.clone(), CallPause { end, doublings });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, CallPause>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_forgets_what_ends_first() {
        let policy = Policy::new("p", Quota::per_second(1)).expect("a policy");
        let call = |key: usize| CallId::new(&policy.charge(key, 1).into());
        let pauses = Pauses::default();
        let begin = |key, pause| {
            pauses.answered(&call(key), Some(Pause::For(pause)), Duration::MAX);
        };
        for key in 0..Pauses::CAPACITY {
            begin(key, Duration::from_secs(100 + key as u64));
        }
        // A second pause of the same calls takes no further place.
        begin(5, Duration::from_secs(1));
        assert_eq!(pauses.lock().len(), Pauses::CAPACITY);
        assert!(pauses.end(&call(0)).is_some(), "none is forgotten before the table is full");
        begin(5_000, Duration::from_secs(500));
        assert_eq!(pauses.lock().len(), Pauses::CAPACITY);
        assert!(pauses.end(&call(0)).is_none() && pauses.end(&call(1)).is_some());
        // Pauses that have ended are removed first.
        tokio::time::advance(Duration::from_secs(600)).await;
        begin(5_001, Duration::from_secs(1));
        assert!(pauses.end(&call(5_001)).is_some());
        assert!(pauses.lock().len() < Pauses::CAPACITY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_beyond_the_clock_is_a_pause() {
        let policy = Policy::new("p", Quota::per_second(1)).expect("a policy");
        let call = CallId::new(&policy.charge("alice", 1).into());
        let pauses = Pauses::default();
        pauses.answered(&call, Some(Pause::For(Duration::MAX)), Duration::MAX);
        assert_eq!(pauses.end(&call), Some(Instant::now() + Quota::MAX_WINDOW));
    }
}

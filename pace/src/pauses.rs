//! The pauses that an upstream service has asked for.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use plimsoll::{Key, Quota, policy::Charges};
use tokio::time::Instant;

use crate::headers::Pause;

/// The names of the policies and the keys that a call is charged to. Shadow charges are left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallId(Vec<(Box<str>, Key)>);

impl CallId {
    pub(crate) fn new(charges: &Charges<'_>) -> Self {
        let enforced = charges.iter().filter(|charge| charge.is_live());
        Self(enforced.map(|charge| (charge.policy().name().into(), *charge.key())).collect())
    }

    /// Returns the name of the first policy, or an empty one if no charge is enforced.
    pub(crate) fn policy(&self) -> String {
        self.0.first().map_or("", |(name, _)| name).to_owned()
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
pub(crate) struct Pauses(Mutex<HashMap<CallId, CallPause>>);

impl Pauses {
    /// The number of pauses that are kept. In a full table, the first to end is forgotten.
    const CAPACITY: usize = 1_024;

    /// Returns the end of the pause of these calls, if it has not passed.
    pub(crate) fn end(&self, call: &CallId) -> Option<Instant> {
        let end = self.lock().get(call)?.end;
        Some(end).filter(|end| *end > Instant::now())
    }

    /// Pauses these calls as their response asks for, for at most `max`, or until their present pause ends if
    /// that is later.
    pub(crate) fn answered(&self, call: &CallId, asked: Option<Pause>, max: Duration) {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::Policy;

    use super::*;

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

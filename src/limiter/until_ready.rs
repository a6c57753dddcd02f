//! Waiting for a turn.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{
    Limiter,
    queue::{MAX_WITHIN, require_timer},
    repeated_check::RepeatedCheck,
};
use crate::{
    decision::{Decision, Denied},
    error::{Error, ErrorKind},
    policy::{Charges, OnFailure},
    telemetry,
};

/// The first and the longest pause between two checks while the store cannot answer. An open breaker
/// sends none of them to the store.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The first and the longest time between two checks while all units are in flight.
pub(super) const MIN_POLL: Duration = Duration::from_millis(5);
const MAX_POLL: Duration = Duration::from_millis(100);

impl Limiter {
    /// Waits like [`until_ready`](Self::until_ready), and also until the times that `paused` returns.
    ///
    /// `paused` is asked before each check, as soon as it is the turn of this task. Its argument is the deadline.
    /// It returns the end of a pause, an instant until which no check is made, or `None`. If it returns an error, so
    /// does this function, and nothing is charged.
    ///
    /// Unlike with `until_ready`, the default of [`Charge::with_on_failure`](crate::Charge::with_on_failure) is
    /// [`OnFailure::Local`]. Set another one with [`Charges::or_on_failure`].
    ///
    /// # Errors
    ///
    /// Returns an error of `paused`, or in the cases of [`until_ready`](Self::until_ready).
    pub async fn until_ready_after<'p, E: From<Error>>(
        &self,
        charges: impl Into<Charges<'p>>,
        within: Duration,
        paused: impl Fn(Instant) -> Result<Option<Instant>, E>,
    ) -> Result<Decision<'p>, E> {
        let charges = charges.into();
        charges.validate()?;
        let deadline = Instant::now() + within.min(MAX_WITHIN);
        let mut enforced = charges.iter().filter(|charge| charge.is_live());
        let waits_for_store = enforced.any(|charge| charge.on_failure() == OnFailure::Deny);
        let check = RepeatedCheck::new(self, charges).await;
        let ticket = self.0.queue.ticket();
        let turn = self.0.queue.enter(check.charges(), ticket)?;
        // Without a reply of the store, the task waits for its turn.
        if let Ok(Some(denial)) = check.denial_if_late(check.charges(), ticket, deadline).await {
            telemetry::record_decision(denial.outcomes(), denial.source(), || None);
            return Ok(denial);
        }
        turn.first(deadline).await?;
        let mut pause = MIN_PAUSE;
        let mut poll = MIN_POLL;
        let decision = loop {
            let mut pause_end = paused(deadline)?;
            while let Some(end) = pause_end {
                require_timer()?;
                sleep_until(end).await;
                pause_end = paused(deadline)?;
            }
            let result = check.acquire().await;
            let wait = match result {
                Ok(reply) => match check.decision(reply)? {
                    Decision::Denied(denied) => match wait_of(&denied, &mut poll) {
                        Some(wait) if Instant::now() + wait <= deadline => wait,
                        _ => break Decision::Denied(denied),
                    },
                    allowed => break allowed,
                },
                Err(error) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || !waits_for_store || !may_pass(&error) {
                        return Err(error.into());
                    }
                    let wait = pause.min(left);
                    pause = (2 * pause).min(MAX_PAUSE);
                    wait
                }
            };
            require_timer()?;
            sleep(wait).await;
        };
        telemetry::record_decision(decision.outcomes(), decision.source(), || None);
        Ok(decision)
    }
}

/// Returns the time until the next check. A unit in flight may be released at any time, so under a
/// concurrency limit the store is asked again after `poll`.
pub(super) fn wait_of(denied: &Denied<'_>, poll: &mut Duration) -> Option<Duration> {
    let Some(wait) = denied.retry_after() else {
        // The store has named no wait, or the deny cache does not know it.
        return (!denied.is_over_capacity()).then_some(MAX_POLL);
    };
    if !denied.binding().is_some_and(|binding| binding.charge().quota().is_concurrent()) {
        return Some(wait);
    }
    let wait = wait.min(*poll);
    *poll = (2 * *poll).min(MAX_POLL);
    Some(wait)
}

/// Returns whether the store may recover from this error by itself.
fn may_pass(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable
            | ErrorKind::BreakerOpen
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfMemory
            | ErrorKind::CannotPersist
            | ErrorKind::Loading
    )
}

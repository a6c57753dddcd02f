//! Waiting for a turn.

use std::time::Duration;

use tokio::time::Instant;

use super::{limiter::Limiter, queue::require_timer};
use crate::{decision::Decision, error::Error, policy::Charges};

/// The maximum of `within`, so that a deadline can be computed.
const MAX_WITHIN: Duration = Duration::from_secs(86_400 * 365);

impl Limiter {
    /// Waits like [`until_ready`](Self::until_ready). When it is the turn of this task, awaits `gate`
    /// before each check. The argument of `gate` is the deadline. If `gate` returns an error, this
    /// function returns the same error, and nothing is charged.
    pub(crate) async fn until_ready_after<'p, E, G, F>(
        &self,
        charges: Charges<'p>,
        within: Duration,
        gate: G,
    ) -> Result<Decision<'p>, E>
    where
        E: From<Error>,
        G: Fn(Instant) -> F,
        F: Future<Output = Result<(), E>>,
    {
        charges.validate()?;
        let deadline = Instant::now() + within.min(MAX_WITHIN);
        let _turn = self.0.queue.turn(&charges, deadline).await?;
        let decision = loop {
            gate(deadline).await?;
            let reply = self.begin(&charges).await?;
            let wait = match Decision::new(&mut charges.clone(), reply)? {
                Decision::Denied(denied) => match denied.retry_after() {
                    Some(wait) if Instant::now() + wait <= deadline => wait,
                    _ => break Decision::Denied(denied),
                },
                allowed => break allowed,
            };
            require_timer()?;
            tokio::time::sleep(wait).await;
        };
        self.report(&decision);
        Ok(decision)
    }
}

//! The charges of a request that may wait and is checked several times.

use std::sync::Arc;

use super::{permit::guard_answer, state::LimiterState};
use crate::{
    decision::{ChargeReply, StoreReply},
    error::Error,
    policy::{Charge, Charges},
};

/// The charges of a request that is checked until it is admitted. Its trials are decided once, when it
/// arrives, because a wait for the live limits is not one for the limit on trial.
pub(super) struct RepeatedCheck<'l, 'p> {
    state: &'l Arc<LimiterState>,
    charges: Charges<'p>,
    /// The same charges, in which each trial costs 0 units.
    repeated: Charges<'p>,
    /// The positions of the trials, and the replies to them.
    trials: Vec<(usize, ChargeReply)>,
}

impl<'l, 'p> RepeatedCheck<'l, 'p> {
    /// Decides the trials. If the store fails, they spend nothing.
    pub(super) async fn new(state: &'l Arc<LimiterState>, charges: Charges<'p>) -> Self {
        if !charges.iter().any(Charge::is_trial) {
            return Self { state, repeated: charges.clone(), charges, trials: Vec::new() };
        }
        let positions = (0..charges.len()).filter(|position| charges[*position].is_trial());
        let trials: Vec<_> = charges.iter().filter(|charge| charge.is_trial()).cloned().collect();
        let reply = state.acquire(&trials).await;
        let replies = reply.map_or_else(|_| Vec::new(), |reply| reply.charges.to_vec());
        let trials = positions.zip(replies).collect();
        let free =
            |charge: Charge<'p>| if charge.is_trial() { charge.with_cost(0) } else { charge };
        Self { state, repeated: charges.clone().into_iter().map(free).collect(), charges, trials }
    }

    pub(super) fn charges(&self) -> &Charges<'p> {
        &self.charges
    }

    /// Checks the charges once more.
    pub(super) async fn acquire(&self) -> Result<StoreReply, Error> {
        let answer = self.state.acquire(&self.repeated);
        let reply = guard_answer(self.state, &self.repeated, answer).await?;
        Ok(self.with_trials(reply))
    }

    /// Puts the replies to the trials into the reply to all charges.
    pub(super) fn with_trials(&self, mut reply: StoreReply) -> StoreReply {
        for (position, trial) in &self.trials {
            if let Some(line) = reply.charges.get_mut(*position) {
                *line = *trial;
            }
        }
        reply
    }
}

//! Penalties: units beyond the limit, and blocks.

use std::time::Duration;

use super::Limiter;
use crate::{
    decision::{Allowed, Decision},
    error::Error,
    policy::Charges,
    quota::Quota,
    store::Request,
};

impl Limiter {
    /// The longest duration of a [`block`](Self::block): 400 days, like the longest window.
    pub const MAX_BLOCK: Duration = Quota::MAX_WINDOW;

    /// Spends the cost of all charges, even beyond the limit. Takes one [`Charge`](crate::Charge) or
    /// several.
    ///
    /// The [outcomes](Allowed::outcomes) have the standings of the keys after the charge, and the
    /// [receipt](Allowed::into_receipt) can refund it. A key that has spent more than its limit is
    /// refused until enough units have come back:
    ///
    /// - The [bounds](crate#choosing-an-algorithm) of the algorithms count the units of checks, not
    ///   those of penalties.
    /// - The debt of a [token bucket](crate::Algorithm::TokenBucket) is at most `burst + limit` units.
    ///   So the key has free units again one window after the last penalty, whatever its cost was.
    /// - If a key has no units left, this process refunds as many of those that it has
    ///   [leased](crate::Quota::leased). Other processes may spend theirs until their lease ends.
    /// - To deny a key for a given time, use [`block`](Self::block).
    ///
    /// ```
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let search = Policy::new("search", Quota::per_minute(100))?;
    ///
    /// // A request that was ten times as expensive as others.
    /// let charged = limiter.penalize(search.charge("alice", 9)).await?;
    /// assert_eq!(charged.remaining(), Some(91));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`Charges::MAX`](crate::Charges::MAX) charges, or if
    /// the store cannot answer and either may have spent the units
    /// ([`Effect::Unknown`](crate::Effect::Unknown)) or the limiter has no
    /// [fallback](crate::Resilience::fallback). If the store has certainly not spent the
    /// units, the fallback spends them, whatever the [`OnFailure`](crate::OnFailure) of the
    /// charges, and charges them to the store later.
    pub async fn penalize<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
    ) -> Result<Allowed<'p>, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.force(&charges).await?;
        Decision::forced(charges, reply)
    }

    /// Blocks the keys of these charges under their policies for `duration`. Takes one
    /// [`Charge`](crate::Charge) or several; their costs are ignored.
    /// Returns the number of keys that had spent units or were already blocked. It is 0 if the block meets
    /// a new key, for example because the address of a client was written in another way than the
    /// [rule](crate::Rule) charges it.
    ///
    /// While a key is blocked, all instances that share the store refuse each charge of 1 unit or more
    /// to it under this policy. No unit remains, and `retry_after` is exact: the end of the block, or
    /// the wait of the algorithm if that is longer.
    ///
    /// - If the key is already blocked, the block that ends later applies. To shorten a block,
    ///   [`unblock`](Self::unblock) the key first.
    /// - [`unblock`](Self::unblock) and [`reset`](Self::reset) lift the block.
    /// - The key keeps the units that it has spent. They come back during the block, and can be
    ///   refunded. Forced charges, such as those of [`penalize`](Self::penalize), also spend units
    ///   during the block.
    /// - If the clock of the store is set back, the rest of the block is at most `duration`.
    /// - The block ends when the policy gets another [algorithm](crate::Algorithm), because the key
    ///   then has a new state.
    ///
    /// ```
    /// use std::time::Duration;
    /// use plimsoll::{Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), plimsoll::Error> {
    /// let limiter = Limiter::in_memory();
    /// let logins = Policy::new("logins", Quota::per_minute(5))?;
    ///
    /// limiter.block(logins.charge("mallory", 1), Duration::from_secs(15 * 60)).await?;
    /// assert!(!limiter.check(logins.charge("mallory", 1)).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # When the store cannot answer
    ///
    /// The [fallback](crate::Resilience::fallback) of this process applies the blocks that this
    /// process has made, even if the call returned an error. It does not know the blocks of other
    /// processes. If this method returned an error, the block is not sent to the store later: call the
    /// method again.
    ///
    /// # Errors
    ///
    /// Returns an error if `duration` is zero or longer than [`MAX_BLOCK`](Self::MAX_BLOCK), if
    /// there are more than [`Charges::MAX`](crate::Charges::MAX) charges, or if the store cannot
    /// answer. The fallback does not replace this request.
    pub async fn block<'p>(
        &self,
        charges: impl Into<Charges<'p>>,
        duration: Duration,
    ) -> Result<usize, Error> {
        let charges = charges.into();
        charges.validate()?;
        if duration.is_zero() || duration > Self::MAX_BLOCK {
            return Err(Error::invalid("duration of a block", duration, "1 ns to 400 days"));
        }
        let reply = self.0.store.call(Request::Block(&charges, duration)).await?;
        Ok(reply.found_keys())
    }

    /// Lifts the [blocks](Self::block) of the keys of these charges. The keys keep the units that they
    /// have spent. Returns the number of keys that were blocked.
    ///
    /// This process admits the keys at once. Another process may refuse a key for 1 s more, from its
    /// [deny cache](crate::Resilience::without_deny_cache).
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`Charges::MAX`](crate::Charges::MAX) charges, or if
    /// the store cannot answer. The fallback does not replace this request.
    pub async fn unblock<'p>(&self, charges: impl Into<Charges<'p>>) -> Result<usize, Error> {
        let charges = charges.into();
        charges.validate()?;
        let reply = self.0.store.call(Request::Unblock(&charges)).await?;
        Ok(reply.found_keys())
    }
}

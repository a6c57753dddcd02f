//! The trait that every store implements, its requests and its nodes.

use std::{
    fmt,
    future::ready,
    pin::Pin,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use super::{Answer, Status};
use crate::{
    decision::Receipt,
    error::Error,
    policy::{Charge, Policy},
    quota::{Algorithm, Quota},
    random,
    runtime::SchedulingDelay,
};

#[doc = include_str!("../../docs/links.md")]
#[doc = include_str!("../../docs/store.md")]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Executes `request` atomically, and answers by `deadline` if there is one.
    ///
    /// If the answer is not [`ready`](Answer::ready), the store copies what it needs from the
    /// request before it returns the [`Answer`].
    ///
    /// A [`Limiter`](crate::Limiter) whose [`Resilience`](crate::Resilience) has a
    /// [`deadline`](crate::Resilience::deadline) passes it on. At `deadline` the limiter stops
    /// waiting, unless [this process is late](crate::guide::resilience#when-this-process-is-late), and assumes
    /// that the request may have been applied. So a store may ignore the deadline. A store that knows
    /// better fails by `deadline` with an error whose [`effect`](crate::Error::effect) is
    ///
    /// - [`Effect::None`](crate::error::Effect::None) if the request has not been sent and will not be,
    /// - [`Effect::Unknown`](crate::error::Effect::Unknown) if it has been sent.
    ///
    /// There is a deadline only inside a tokio runtime, so the store may then set a timer.
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer;

    /// Returns the [`Traits`] of the store, which say how a limiter uses it. They never change. The default has
    /// none: a store over a network, whose limiter sets the deadline.
    fn traits(&self) -> Traits {
        Traits::default()
    }

    /// Returns the node that a charge depends on. Each node has a circuit breaker of its own. The
    /// default is the number 0: all charges depend on the same server.
    fn node(&self, _charge: &Charge<'_>) -> NodeId {
        NodeId::ONLY
    }

    /// Returns the [`Status`] of the store. The default is a status without any part.
    fn status(&self) -> Status {
        Status::default()
    }

    /// Returns a description of the store, such as `memory (1000000 keys, 256 MiB)`, for the event
    /// that [a layer emits](crate::RateLimitLayer#first-start) when it is first used. It contains
    /// neither keys nor addresses nor passwords. The default is the name of the type.
    fn description(&self) -> String {
        std::any::type_name::<Self>().to_owned()
    }

    /// Refunds the units that the store itself has leased, and leases no more.
    /// [`Limiter::close`](crate::Limiter::close) calls it. The default does nothing.
    ///
    /// # Errors
    ///
    /// The result is an error if some units cannot be refunded.
    fn close(&self) -> Closing<'_> {
        Box::pin(ready(Ok(())))
    }
}

/// The future of [`Store::close`].
pub type Closing<'s> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 's>>;

/// The traits of a [`Store`]: how a limiter uses it. A store that wraps another returns the traits of that
/// store, or changes them.
///
/// # Examples
///
/// ```
/// use plimsoll::store::Traits;
///
/// let mut shared = Traits::default();
/// shared.counts_leases = true;
/// shared.keeps_deadlines = true;
/// assert!(shared.counts_leases && !shared.is_embedded);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Traits {
    /// Every [`Answer`] is [`ready`](Answer::ready) and never an error, so the store needs no
    /// [`Resilience`](crate::Resilience).
    pub is_embedded: bool,
    /// The store counts each charge by [`Quota::counted`](crate::Quota::counted), so that a
    /// [leased](crate::Quota::leased) quota holds while a process uses its units later. Without this trait, no
    /// units are leased.
    pub counts_leases: bool,
    /// Instances of a service share the store, and count themselves in it. Each limiter over the store that has a
    /// [fallback](crate::Resilience::fallback) announces itself every 2 s: it [forces](Request::Force) a charge of 1
    /// unit of a [concurrency limit](crate::Quota::concurrent), and [refunds](Request::Refund) the unit of its last
    /// announcement. The number of units in flight is the number of instances.
    pub counts_instances: bool,
    /// The second number of the [`Mark`](crate::store::Mark) of a charge to a token bucket is the debt after the
    /// charge, so the mark of a part of the charge can be computed.
    pub marks_debts: bool,
    /// The answer is ready by the deadline of its request, so the limiter sets no timer.
    pub keeps_deadlines: bool,
    /// The store has breakers, deny caches, leases and a fallback around the servers that it calls. A limiter
    /// over it adds only the deadline.
    pub protects_itself: bool,
    /// The record of late timers, of a store that keeps deadlines.
    pub(crate) scheduling_delay: Option<SchedulingDelay>,
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        (**self).call(request, deadline)
    }

    fn traits(&self) -> Traits {
        (**self).traits()
    }

    fn node(&self, charge: &Charge<'_>) -> NodeId {
        (**self).node(charge)
    }

    fn status(&self) -> Status {
        (**self).status()
    }

    fn description(&self) -> String {
        (**self).description()
    }

    fn close(&self) -> Closing<'_> {
        (**self).close()
    }
}

/// A request to a [`Store`].
///
/// The [`Charge`]s of a request differ from each other in [`Policy`],
/// [`Key`](crate::Key), or in that one is live and the other a [shadow](Charge::shadow) or a
/// [trial](Charge::trial).
///
/// # Examples
///
/// ```
/// use plimsoll::{MemoryStore, Policy, Quota, memory::MemoryConfig, store::{Request, Store}};
///
/// let store = MemoryStore::new(MemoryConfig::default());
/// let search = Policy::new("search", Quota::per_minute(100))?;
/// let charges = [search.charge("alice", 10)];
/// for request in [Request::Force(&charges), Request::Peek(&charges)] {
///     let reply = store.call(request, None).now().expect("the answer of a memory store is ready")?;
///     assert_eq!(reply.charges()[0].standing.remaining, 90);
/// }
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Spends the cost of all [live](Charge::is_live) charges, or of none. If it spends them, it also
    /// spends each [shadow](Charge::shadow) charge that passes by itself. In both cases it then spends
    /// each [trial](Charge::trial) charge that passes by itself.
    Acquire(&'a [Charge<'a>]),
    /// Answers like [`Acquire`](Self::Acquire), and spends nothing.
    Peek(&'a [Charge<'a>]),
    /// Spends the cost of each charge, even beyond the limit.
    Force(&'a [Charge<'a>]),
    /// Refunds the units of each [line](Receipt::lines) of a [`Receipt`] that the store still
    /// counts.
    Refund(&'a Receipt),
    /// Forgets the units that the keys of these charges have spent, and lifts their blocks. The
    /// [units](super::ChargeReply::units) of the reply say which keys there were, also for the next two.
    Reset(&'a [Charge<'a>]),
    /// [Blocks](crate::Limiter::block) the keys of these charges under their policies for a duration.
    /// The reply has the standings of the blocked keys.
    Block(&'a [Charge<'a>], Duration),
    /// Lifts the blocks of the keys of these charges. The keys keep the units that they have spent.
    Unblock(&'a [Charge<'a>]),
}

impl<'a> Request<'a> {
    /// Returns the charges of the request. The charges of a refund are in its receipt.
    pub(crate) fn slice(self) -> &'a [Charge<'a>] {
        match self {
            Self::Acquire(charges)
            | Self::Peek(charges)
            | Self::Force(charges)
            | Self::Reset(charges)
            | Self::Block(charges, _)
            | Self::Unblock(charges) => charges,
            Self::Refund(_) => &[],
        }
    }

    /// Returns the charges of the request, and for a refund the charges of its receipt.
    pub(crate) fn charges(self) -> impl Iterator<Item = &'a Charge<'a>> {
        let lines = match self {
            Self::Refund(receipt) => receipt.lines(),
            _ => &[],
        };
        self.slice().iter().chain(lines.iter().map(|line| -> &'a Charge<'a> { &line.charge }))
    }
}

/// The identity of one node of a store: a server on which some of the requests depend, and others do
/// not.
///
/// A store whose requests all depend on the same server has one node, the number 0. A Redis cluster
/// has one for each server that has slots. The number is never used again for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node of a store that has only one. In a store with several, it stands for the store as a
    /// whole, as long as the node of a request is not known.
    pub(crate) const ONLY: Self = Self(0);

    /// Returns the number of the node, unless it is the [only one](Self::ONLY).
    pub(crate) fn number(self) -> Option<u32> {
        (self != Self::ONLY).then_some(self.0)
    }

    /// Returns the charge of a probe: 1 unit for a random key that depends on this node. `node_of`
    /// returns the node of a charge. Returns `None` if no such key was found.
    ///
    /// A probe is a [`Force`](Request::Force) of this charge. It takes the same path through the
    /// store as a check, and writes, so it also fails if the store answers but cannot write.
    pub(crate) fn probe(self, node_of: impl Fn(&Charge<'_>) -> Self) -> Option<Charge<'static>> {
        let mut charges = (0..MAX_PROBE_KEYS).filter_map(|_| probe_charge());
        if self == Self::ONLY { charges.next() } else { charges.find(|it| node_of(it) == self) }
    }
}

/// The policy of probes. Its keys expire after a second.
static PROBE_POLICY: LazyLock<Option<Policy>> = LazyLock::new(|| {
    let algorithm = Algorithm::TokenBucket { burst: 1 };
    let quota = Quota::new(1, Duration::from_secs(1), algorithm).ok()?;
    Policy::new("plimsoll-probe", quota).ok()
});

/// Returns a charge of 1 unit for a random key.
pub(crate) fn probe_charge() -> Option<Charge<'static>> {
    PROBE_POLICY.as_ref().map(|policy| policy.charge(random::number(), 1))
}

/// The maximum number of random keys that are tried to find one that depends on a given node. For a
/// node of a cluster with a thousandth of the slots, this fails once in 20,000 times.
const MAX_PROBE_KEYS: usize = 10_000;

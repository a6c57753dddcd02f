//! The shared store, and the requests that it sends for [`Store`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::test_time::TestTime;
use super::{
    RedisConfig,
    backend::Backend,
    batch::{Batcher, CallOptions},
    error::Failure,
    key_name::{self, KeyNames},
    multi_slot,
    self_test::SelfTest,
    startup::Startup,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::{
    algorithm::block_micros,
    clock::Timestamp,
    decision::{Receipt, Source, StoreReply},
    error::{Effect, Error},
    policy::Charge,
    runtime::{TimeLimit, runtime_with_timer},
    store::{Answer, NodeId, Request, Status, Store, Traits},
};

#[doc = include_str!("../../docs/links.md")]
#[doc = include_str!("../../docs/redis.md")]
#[derive(Debug, Clone)]
pub struct RedisStore(Arc<StoreShared>);

#[derive(Debug)]
struct StoreShared {
    batcher: Batcher,
    key_names: KeyNames,
    /// The text of [`Store::description`].
    description: Box<str>,
    test_time: TestTime,
    /// The start of a [lazy](RedisConfig::lazy) store.
    startup: Option<Startup>,
}

impl RedisStore {
    /// Connects to the server at a URL, with the default [`RedisConfig`], and runs the
    /// [self-test](Self#what-connecting-checks) of the script.
    ///
    /// The URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://..` for TLS, or
    /// `unix:///path[?user=..&pass=..&db=..]`.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, no server answers there, the password is wrong, or the
    /// self-test fails. A [lazy](RedisConfig::lazy) store starts without a server.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(RedisConfig::url(url)).await
    }

    /// Connects to the servers of a [`RedisConfig`], and runs the
    /// [self-test](Self#what-connecting-checks) of the script.
    ///
    /// A [lazy](RedisConfig::lazy) store connects in the background instead, and this method returns
    /// at once. Until the store has connected, its checks fail at once, so a
    /// [`Limiter`](crate::Limiter) over it decides by its
    /// [fallback](crate::Resilience::fallback). See [Starting without
    /// Redis](Self#starting-without-redis).
    ///
    /// # Errors
    ///
    /// Returns an error if a value of the configuration or a URL is not valid. Unless the store is lazy,
    /// an error is also returned if
    ///
    /// - no server, no sentinel that names a primary, or no node of the cluster answers;
    /// - the self-test fails, in a cluster on one of the nodes that answer.
    pub async fn connect_with(config: RedisConfig) -> Result<Self, Error> {
        let backend = backend(&config)?;
        let batcher = Batcher::new(backend, config.batching);
        let key_names = KeyNames::new(&config);
        let self_test = SelfTest::new(batcher.clone(), key_names.clone());
        let startup = if config.lazy {
            Some(Startup::new(self_test, config.connect_timeout))
        } else if runtime_with_timer().is_none() {
            return Err(Failure::NoRuntime.into());
        } else {
            self_test.run().await?;
            None
        };
        Ok(Self(Arc::new(StoreShared {
            description: description(&batcher, &config).into(),
            batcher,
            key_names,
            test_time: TestTime::default(),
            startup,
        })))
    }

    /// Checks the values of a configuration and the form of its URLs, and connects to nothing.
    ///
    /// ```
    /// use plimsoll::{RedisStore, redis::RedisConfig};
    ///
    /// let config = RedisConfig::url("redis://shop:pa/ss@localhost/");
    /// let error = RedisStore::check(&config).unwrap_err();
    /// assert!(error.to_string().contains("percent-encoded"));
    /// assert!(RedisStore::check(&RedisConfig::url("redis://shop:pa%2Fss@localhost/")).is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a value of the configuration or a URL is not valid. It does not contain the URL.
    pub fn check(config: &RedisConfig) -> Result<(), Error> {
        backend(config).map(drop)
    }

    /// Connects through the manager of the application's own [pool](bb8::Pool): with its address,
    /// user, password, certificates and connection customizer. [`RedisConfig::pool`] does the same
    /// with other settings.
    ///
    /// The store opens [`connections`](RedisConfig::connections) connections of its own, which the
    /// pool's `max_size` does not count. It never uses the connections that the application checks
    /// out, so the application may use transactions, `SELECT` and blocking commands on them. Set
    /// `TCP_NODELAY` in the manager's connection info. Without it, a request can wait until the server
    /// has acknowledged an earlier one.
    ///
    /// # Errors
    ///
    /// Returns an error if the pool's manager cannot connect, or if the
    /// [self-test](Self#what-connecting-checks) fails.
    #[cfg(feature = "bb8")]
    pub async fn from_pool(
        pool: bb8::Pool<bb8_redis::RedisConnectionManager>,
    ) -> Result<Self, Error> {
        Self::connect_with(RedisConfig::pool(pool)).await
    }

    /// Sets a clock that gives the time of each call, for tests. Keys then expire after a day.
    ///
    /// # Panics
    ///
    /// Panics if the store has been cloned.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(self, clock: impl crate::clock::Clock) -> Self {
        let test_time = TestTime(Some(Arc::new(clock)));
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Self(Arc::new(StoreShared { test_time, ..shared })),
            Err(_) => panic!("set the clock before the store is shared"),
        }
    }

    fn wire_check(&self, charges: &[Charge<'_>]) -> WireCheck {
        self.wire_charges(charges, |charge| charge)
    }

    fn wire_block(&self, charges: &[Charge<'_>], duration: Duration) -> WireCheck {
        let micros = block_micros(duration);
        self.wire_charges(charges, |charge| charge.block(micros))
    }

    fn wire_charges(
        &self,
        charges: &[Charge<'_>],
        change: impl Fn(WireCharge) -> WireCharge,
    ) -> WireCheck {
        let charges = charges.iter().enumerate();
        let charges = charges
            .map(|(position, charge)| change(WireCharge::new(&self.0.key_names, position, charge)));
        WireCheck::new(charges.collect())
    }

    fn wire_refund(&self, receipt: &Receipt) -> WireCheck {
        let lines = receipt.lines().iter().enumerate();
        let charges =
            lines.map(|(position, spent)| WireCharge::refund(&self.0.key_names, position, spent));
        WireCheck::new(charges.collect())
    }

    fn execute(&self, request: Request<'_>, deadline: Option<TimeLimit>) -> Answer {
        let (operation, check) = match request {
            Request::Acquire(charges) => (Operation::Acquire, self.wire_check(charges)),
            Request::Peek(charges) => (Operation::Peek, self.wire_check(charges)),
            Request::Force(charges) => (Operation::Force, self.wire_check(charges)),
            Request::Reset(charges) => (Operation::Reset, self.wire_check(charges)),
            Request::Block(charges, duration) => {
                (Operation::Block, self.wire_block(charges, duration))
            }
            Request::Unblock(charges) => (Operation::Unblock, self.wire_check(charges)),
            Request::Refund(receipt) => (Operation::Refund, self.wire_refund(receipt)),
        };
        let (shared, test_time) = (Arc::clone(&self.0), self.0.test_time.now());
        let options = CallOptions { operation, deadline, test_time };
        let reply = async move {
            // With a deadline there are timers.
            if deadline.is_none() && runtime_with_timer().is_none() {
                return Err(Failure::NoRuntime.into());
            }
            shared.ready(deadline).await?;
            shared.run(check, options).await
        };
        Answer::pending(reply)
    }
}

impl StoreShared {
    /// Waits for the start of a lazy store.
    async fn ready(&self, deadline: Option<TimeLimit>) -> Result<(), Failure> {
        match &self.startup {
            Some(startup) if !startup.is_ready() => {
                startup.ready(deadline.map(TimeLimit::time)).await
            }
            _ => Ok(()),
        }
    }

    /// Runs the script, with one call for each slot.
    async fn run(&self, mut check: WireCheck, options: CallOptions) -> Result<StoreReply, Error> {
        let batcher = &self.batcher;
        let Some(slot) = batcher.backend().only_slot(&check) else {
            return multi_slot::execute(batcher, check, options).await;
        };
        if check.charges().is_empty() {
            return Ok(StoreReply::new(Timestamp::default(), Source::Shared, []));
        }
        let reply = batcher.run_by_deadline(slot, &mut check, options).await;
        let reply = reply.map_err(|failure| {
            let error = batcher.error(slot, &check, failure);
            // Some units may have been released although others could not.
            let is_partial = check.is_release(options.operation) && check.charges().len() > 1;
            match is_partial && !error.is_unavailable() {
                true => error.with_effect(Effect::Unknown),
                false => error,
            }
        })?;
        Ok(reply.into_store_reply(&check))
    }
}

fn backend(config: &RedisConfig) -> Result<Backend, Error> {
    config.validate()?;
    Ok(Backend::new(config).map_err(Failure::ServerError)?)
}

/// Returns the text of [`Store::description`].
fn description(batcher: &Batcher, config: &RedisConfig) -> String {
    let RedisConfig { connections, prefix, .. } = config;
    let kind = batcher.backend().kind();
    let each = if matches!(batcher.backend(), Backend::Cluster(_)) { " to each node" } else { "" };
    let noun = if *connections == 1 { "connection" } else { "connections" };
    let database = batcher.backend().database();
    let database = database.map_or_else(String::new, |number| format!(", database {number}"));
    format!("Redis ({kind}{database}, {connections} {noun}{each}, prefix {prefix})")
}

impl Store for RedisStore {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        self.execute(request, deadline.map(|deadline| TimeLimit::at(deadline.into())))
    }

    fn traits(&self) -> Traits {
        Traits {
            counts_leases: true,
            marks_debts: true,
            keeps_deadlines: true,
            scheduling_delay: Some(self.0.batcher.scheduling_delay().clone()),
            ..Traits::default()
        }
    }

    fn status(&self) -> Status {
        match self.0.startup.as_ref().and_then(Startup::failure) {
            Some(error) => Status { not_ready: Some(error.to_string()), ..Status::default() },
            None => Status::default(),
        }
    }

    fn description(&self) -> String {
        self.0.description.to_string()
    }

    fn node(&self, charge: &Charge<'_>) -> NodeId {
        match self.0.batcher.backend() {
            Backend::Server(..) => NodeId::ONLY,
            Backend::Cluster(cluster) => {
                cluster.node(key_name::slot(&self.0.key_names.name(charge)))
            }
        }
    }
}

/// The seam through which a test sets the time of a store.
#[cfg(feature = "test-util")]
mod test_time {
    use std::sync::Arc;

    use crate::clock::Clock;

    /// The clock of a test, if one is set.
    #[derive(Debug, Clone, Default)]
    pub(super) struct TestTime(pub(super) Option<Arc<dyn Clock>>);

    impl TestTime {
        /// Returns the time in microseconds since the Unix epoch, or `None` for the server's time.
        pub(super) fn now(&self) -> Option<u64> {
            self.0.as_ref().map(|clock| clock.now().as_micros())
        }
    }
}

/// The seam without the feature `test-util`: a service in production always uses the time of the
/// server.
#[cfg(not(feature = "test-util"))]
mod test_time {
    /// The seam without a clock, which always leaves the time to the server.
    #[derive(Debug, Clone, Default)]
    pub(super) struct TestTime(());

    impl TestTime {
        /// Returns `None`, which stands for the time of the server.
        #[expect(clippy::unused_self, reason = "the other seam needs it")]
        pub(super) fn now(&self) -> Option<u64> {
            None
        }
    }
}

//! The shared store, and the requests that it sends for [`Store`].

use std::{fmt, mem, sync::Arc, time::Instant};

use super::{
    RedisConfig,
    backend::Backend,
    batch::{Batcher, CallOptions},
    error::Failure,
    multi_slot,
    startup::{SelfTest, Startup},
    wire::{self, KeyNames, WireCheck},
};
use crate::{
    clock::Timestamp,
    decision::{Source, StoreReply},
    error::{Effect, Error},
    policy::Charge,
    runtime::{TimeLimit, runtime_with_timer},
    store::{Answer, NodeId, Request, Status, Store, Traits},
};

#[doc = include_str!("../../docs/links.md")]
#[doc = include_str!("../../docs/redis.md")]
#[derive(Clone)]
pub struct RedisStore(Arc<StoreShared>);

struct StoreShared {
    batcher: Batcher,
    key_names: KeyNames,
    /// The text of [`Store::description`].
    description: Box<str>,
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
        let self_test = SelfTest { batcher: batcher.clone(), key_names: key_names.clone() };
        let startup = if config.lazy {
            Some(Startup::new(self_test, config.connect_timeout))
        } else if runtime_with_timer().is_none() {
            return Err(Failure::NoRuntime.into());
        } else {
            self_test.run().await.map_err(|failure| self_test.error(failure))?;
            None
        };
        Ok(Self(Arc::new(StoreShared {
            description: config.describe().into(),
            batcher,
            key_names,
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

    /// Sets a clock that gives the time of each call, for tests. Keys then expire after a day.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn with_test_clock(self, clock: impl crate::clock::Clock) -> Self {
        self.0.batcher.set_test_clock(Arc::new(clock));
        self
    }

    fn execute(&self, request: Request<'_>, deadline: Option<TimeLimit>) -> Answer {
        let (operation, mut check) = WireCheck::of_request(&self.0.key_names, request);
        let options = CallOptions { operation, deadline };
        // With a deadline there are timers.
        let has_timer = deadline.is_some() || runtime_with_timer().is_some();
        let order = check.order();
        // While a call is in flight, a check waits for its batch. Its future has no call of its own, so it is small.
        let batcher = &self.0.batcher;
        let slot = batcher.backend().only_slot(&check).filter(|_| has_timer);
        if let Some(slot) = slot
            && let Some(mut queued) = batcher.try_queue(slot, &mut check, options)
        {
            return Answer::pending(async move {
                match queued.finish().await {
                    Ok(reply) => Ok(order.restore(reply)),
                    Err(failed) => Err(queued.error(*failed)),
                }
            });
        }
        let shared = Arc::clone(&self.0);
        Answer::pending(async move {
            if options.deadline.is_none() && runtime_with_timer().is_none() {
                return Err(Failure::NoRuntime.into());
            }
            if let Some(startup) = &shared.startup {
                startup.ready(options.deadline).await?;
            }
            shared.run(&mut check, options).await
        })
    }
}

impl StoreShared {
    /// Runs the script, with one call for each slot.
    async fn run(&self, check: &mut WireCheck, options: CallOptions) -> Result<StoreReply, Error> {
        let batcher = &self.batcher;
        let Some(slot) = batcher.backend().only_slot(check) else {
            return multi_slot::execute(batcher, mem::take(check), options).await;
        };
        if check.charges().is_empty() {
            return Ok(StoreReply::new(Timestamp::default(), Source::Shared, []));
        }
        let order = check.order();
        match batcher.run_by_deadline(slot, check, options).await {
            Ok(reply) => Ok(order.restore(reply)),
            Err(failure) => {
                let error = batcher.error(slot, check, failure);
                // Some units may have been released although others could not.
                let is_partial = check.is_release(options.operation) && check.charges().len() > 1;
                if is_partial && !error.is_unavailable() {
                    return Err(error.with_effect(Effect::Unknown));
                }
                Err(error)
            }
        }
    }
}

fn backend(config: &RedisConfig) -> Result<Backend, Error> {
    config.validate()?;
    Ok(Backend::new(config).map_err(Failure::ServerError)?)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.0.description).finish()
    }
}

impl Store for RedisStore {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        self.execute(request, deadline.map(|deadline| TimeLimit::at(deadline.into())))
    }

    fn traits(&self) -> Traits {
        Traits {
            counts_leases: true,
            counts_instances: true,
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
            Backend::Server(_) => NodeId::ONLY,
            Backend::Cluster(cluster) => cluster.node(wire::slot(&self.0.key_names.name(charge))),
        }
    }
}

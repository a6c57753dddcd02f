//! A server whose clock is set forward and back while it runs.

use std::{fs, path::PathBuf, time::Duration};

use plimsoll::{Algorithm, Decision, Limiter, Policy, Quota, RedisStore, redis::RedisConfig};
use plimsoll_testing::{
    algorithms::with_parameters,
    servers::{Server, directory, run, until},
};
use tokio::time::Instant;

use crate::patient;

const HOUR: Duration = Duration::from_secs(3_600);
const WINDOW: Duration = Duration::from_secs(5);
const LIMIT: u64 = 5;

/// The clock of a server. Only the time of day is set: like the real one, the monotonic clock goes on.
struct ServerClock {
    offset: PathBuf,
    directory: PathBuf,
}

impl ServerClock {
    fn new() -> Self {
        let directory = directory();
        let clock = Self { offset: directory.join("offset"), directory };
        clock.set(Duration::ZERO);
        clock
    }

    fn environment(&self) -> [String; 2] {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/clock.c");
        run(&self.directory, "cc", &["-shared", "-fPIC", "-o", "clock.so", source]);
        [
            format!("LD_PRELOAD={}/clock.so", self.directory.display()),
            format!("PLIMSOLL_TEST_CLOCK={}", self.offset.display()),
        ]
    }

    /// Sets the clock of the server this far ahead of the clock of the machine.
    fn set(&self, ahead: Duration) {
        // Renamed, so that the server never finds it empty.
        let new = self.offset.with_extension("new");
        fs::write(&new, ahead.as_micros().to_string()).expect("written");
        fs::rename(new, &self.offset).expect("renamed");
    }
}

impl Drop for ServerClock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn server_time(server: &Server) -> Duration {
    let [seconds, micros]: [u64; 2] = server.ask("TIME");
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Checks the whole limit at once, and returns the wait if it is denied.
async fn check(limiter: &Limiter, policy: &Policy) -> Result<(), Duration> {
    match limiter.check(policy.charge("alice", LIMIT)).await.expect("an answer") {
        Decision::Allowed(_) => Ok(()),
        Decision::Denied(denied) => Err(denied.retry_after().expect("a wait")),
    }
}

/// An hour forward and back, as a machine does whose clock was wrong. A step forward admits one more limit.
/// After the step back, the wait is one window, and not an hour.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_the_server_is_set_an_hour_forward_and_back() {
    let clock = ServerClock::new();
    let server = Server::start_in(&clock.environment(), &[]);
    let config = RedisConfig::url(server.url()).with_settings(patient());
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    let (time_at_start, started) = (server_time(&server), Instant::now());
    for &algorithm in Algorithm::EACH {
        // A second into a window, so that a fixed window does not end between two checks.
        let into_window = (time_at_start + started.elapsed()).as_micros() % WINDOW.as_micros();
        let start = WINDOW + Duration::from_secs(1) - Duration::from_micros(into_window as u64);
        let set = |ahead: Duration| {
            clock.set(start + ahead);
            // Valkey reads its clock between two turns of its event loop.
            until("the server has the time", || {
                server_time(&server).abs_diff(time_at_start + started.elapsed() + start + ahead)
                    < Duration::from_secs(1)
            });
        };
        set(Duration::ZERO);
        let algorithm = with_parameters(algorithm, 1, LIMIT);
        let quota = Quota::new(LIMIT, WINDOW, algorithm);
        let policy = Policy::new("steps", quota.expect("a valid quota")).expect("a valid name");
        limiter.reset(policy.charge("alice", 0)).await.expect("an answer");
        assert_eq!(check(&limiter, &policy).await, Ok(()), "{algorithm:?}");
        assert!(check(&limiter, &policy).await.is_err(), "{algorithm:?}");

        set(HOUR);
        assert_eq!(check(&limiter, &policy).await, Ok(()), "{algorithm:?}: one more limit");
        assert!(check(&limiter, &policy).await.is_err(), "{algorithm:?}");

        set(Duration::ZERO);
        let wait = check(&limiter, &policy).await.expect_err("the limit is spent");
        assert!(wait <= 2 * WINDOW, "{algorithm:?}: a wait of {wait:?}");
        server.assert_all_keys_expire();
        set(wait);
        assert_eq!(check(&limiter, &policy).await, Ok(()), "{algorithm:?}: after the wait");
    }
}

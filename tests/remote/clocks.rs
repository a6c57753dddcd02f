//! The clock of the store, and the clock of the leases, run at different rates.

use std::time::Duration;

use plimsoll::{
    Limiter, Policy, Resilience,
    clock::{Clock, ManualClock},
};
use plimsoll_testing::policy;
use tokio::{task::yield_now, time::advance};

use crate::remote::Remote;

const START: u64 = 1_700_000_000_000_000;
/// The time since the machine of the process was started.
const BOOT: u64 = 5_000_000;
const STEP: Duration = Duration::from_millis(10);
/// The checks of a second.
const CHECKS: u64 = 200;

struct World {
    store: Remote,
    server: ManualClock,
    process: ManualClock,
    limiter: Limiter,
    policy: Policy,
}

impl World {
    fn new() -> Self {
        let (server, process) = (ManualClock::at(START), ManualClock::at(BOOT));
        let store = Remote::new(&server);
        let resilience = Resilience::default().clock(process.clone());
        let limiter = Limiter::with_resilience(store.clone(), resilience);
        Self { store, server, process, limiter, policy: policy("p", "100000/s leased(100ms)") }
    }

    /// Checks a busy key, while the server's clock gains so many microseconds in a second. Returns the calls of the last
    /// second.
    async fn run(&self, seconds: u64, ppm: i64) -> u64 {
        let mut calls = 0;
        for _ in 0..seconds {
            calls = self.store.calls();
            for step in 0..CHECKS {
                let check = self.limiter.check(self.policy.charge("busy", 1)).await;
                assert!(check.expect("an answer").is_allowed());
                if step % 2 == 0 {
                    self.process.advance(STEP);
                    let micros = STEP.as_micros() as i64 + ppm / 100;
                    self.server.advance(Duration::from_micros(micros as u64));
                    advance(STEP).await;
                }
                yield_now().await;
            }
        }
        self.store.calls() - calls
    }

    fn leases(&self, calls: u64) -> bool {
        let is_leased = self.limiter.status().leased_units > 0;
        assert_eq!(is_leased, calls < CHECKS / 4, "{calls} calls");
        assert!(is_leased || calls >= CHECKS, "{calls} calls");
        is_leased
    }

    /// Returns the microseconds since the start.
    fn elapsed(&self) -> u64 {
        self.process.now().as_micros() - BOOT
    }

    fn drift(&self) -> i64 {
        self.limiter.status().clock_drift_ppm
    }
}

/// Leases allow a drift of 1,000 parts per million, and end at half of it, whichever clock is the fast one.
#[tokio::test(start_paused = true)]
async fn a_process_whose_clock_drifts_does_not_lease_until_it_is_well() {
    let world = World::new();
    assert!(world.leases(world.run(5, 0).await));
    for sign in [1, -1] {
        assert!(world.leases(world.run(90, 400 * sign).await));
        assert!((349..=400).contains(&(world.drift() * sign)), "{}", world.drift());
        assert!(!world.leases(world.run(90, 600 * sign).await));
        assert!((549..=600).contains(&(world.drift() * sign)), "{}", world.drift());
        assert!(world.leases(world.run(45, 0).await));
        assert_eq!(world.drift(), 0);
    }
}

/// An hour forward and back is no drift.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_does_not_end_the_leases() {
    let world = World::new();
    for offset in [0, 3_600_000_000, 0] {
        world.server.set(START + offset + world.elapsed());
        for _ in 0..7 {
            assert!(world.leases(world.run(10, 0).await), "{offset}");
            assert_eq!(world.drift(), 0, "{offset}");
        }
    }
}

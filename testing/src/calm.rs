//! Tests that measure real time, on a machine that may be busy.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use tokio::time::Instant;

/// A control that is later than this has shown that the machine was busy. A miss on a busy machine is not
/// excused, but tried again.
const CALM: Duration = Duration::from_millis(1);
const RUNS: u32 = 20;
/// The pause before the second run; the pause before each later run is longer by as much, so that a burst of
/// load may pass.
const PAUSE: Duration = Duration::from_millis(250);

/// Watches how late a thread of this process runs.
struct Control {
    stop: Arc<AtomicBool>,
    latest: Arc<AtomicU64>,
}

impl Control {
    fn start() -> Self {
        let control = Self { stop: Arc::default(), latest: Arc::default() };
        let (stop, latest) = (Arc::clone(&control.stop), Arc::clone(&control.latest));
        // Outside of a runtime, tokio's clock cannot be paused.
        thread::spawn(move || {
            let pause = Duration::from_millis(2);
            while !stop.load(SeqCst) {
                let start = Instant::now();
                thread::sleep(pause);
                let late = start.elapsed().saturating_sub(pause);
                latest.fetch_max(late.as_micros() as u64, SeqCst);
            }
        });
        control
    }

    fn latest(&self) -> Duration {
        Duration::from_micros(self.latest.load(SeqCst))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

/// Runs `scenario`, which returns an error when it misses a bar of time.
///
/// A miss fails the test if the machine was calm meanwhile. Otherwise the miss may be the machine's,
/// and the scenario runs again, up to 20 times in all.
///
/// # Panics
///
/// Panics if `scenario` misses its bar on a calm machine, or in each of the runs.
pub async fn on_a_calm_machine(scenario: impl AsyncFn() -> Result<(), String>) {
    for run in 1..=RUNS {
        let control = Control::start();
        let Err(miss) = scenario().await else { return };
        let late = control.latest();
        assert!(late > CALM && run < RUNS, "{miss} (run {run}; the machine was {late:?} late)");
        repeated(&format!("the machine was {late:?} late: {miss}"));
        tokio::time::sleep(PAUSE * run).await;
    }
}

/// Prints that this test runs its scenario once more, and why. `./scripts/test` counts these lines.
pub fn repeated(why: &str) {
    let thread = thread::current();
    eprintln!("\nrepeated {}: {why}", thread.name().unwrap_or("a test"));
}

/// Waits until `condition` holds, for at most 60 s.
///
/// # Panics
///
/// Panics if it does not.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

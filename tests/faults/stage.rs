//! A server, its control and their load, while a fault comes and goes.

use std::time::Duration;

use plimsoll::clock::{Clock, SystemClock};
use plimsoll_testing::calm::repeated;
use tokio::time::sleep;

use crate::{figures::Figures, load::Loading, part_of_machine, server::Serving};

/// The setup of one run: a server, its store, and the expected effect of the fault.
pub(crate) struct Stage<'a> {
    what: &'a str,
    /// The address of the store of the server.
    store: String,
    /// Environment variables of the server's process.
    environment: Vec<(&'a str, &'a str)>,
    /// The number of times that Redis starts without data, the first start included.
    lives: u64,
    /// True if Redis is expected to decide every check.
    is_unnoticed: bool,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(what: &'a str, store: String) -> Self {
        Self { what, store, environment: Vec::new(), lives: 1, is_unnoticed: false }
    }

    /// The server's process has these variables, too.
    pub(crate) fn in_environment(mut self, environment: &'a [(&'a str, impl AsRef<str>)]) -> Self {
        self.environment =
            environment.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        self
    }

    /// Redis forgets everything once.
    pub(crate) fn loses_data(mut self) -> Self {
        self.lives += 1;
        self
    }

    /// Expects no effect: each check that Redis has not decided misses a bar.
    pub(crate) fn goes_unnoticed(mut self) -> Self {
        self.is_unnoticed = true;
        self
    }

    /// Injects a fault for a second under load. `end` returns when Redis can serve again.
    pub(crate) async fn run(
        self,
        begin: impl AsyncFnOnce(&Serving),
        end: impl AsyncFnOnce(&Serving),
    ) -> Figures {
        let _part = part_of_machine().await;
        let Self { what, store, environment, lives, is_unnoticed } = self;
        let (server, control) = (Serving::start(&store, &environment), Serving::control());
        let load = Loading::start(server.address, control.address);
        let clock = SystemClock::new();
        let now = || clock.now().as_micros();
        sleep(Duration::from_millis(500)).await;
        let began = now();
        begin(&server).await;
        sleep(Duration::from_secs(1)).await;
        end(&server).await;
        let ended = now();
        sleep(Duration::from_millis(2_200)).await;
        let mut figures = Figures::of(what, &load.end(), began, ended, lives);
        figures.is_unnoticed = is_unnoticed;
        eprintln!("measured: {what}: {figures}");

        // Also on a busy machine: a client may wait longer, but gets no error.
        assert_eq!(figures.errors, 0, "{what}: clients see no error");
        assert_eq!(figures.wrong, 0, "{what}: beyond the bound");
        figures
    }
}

/// The 99th percentile of the control's requests on a machine that has time to measure: twice what an
/// idle machine shows.
const CALM: Duration = Duration::from_millis(5);
/// The longest of them: beyond the deadline of a check, the machine alone can open the breaker.
const STALLED: Duration = Duration::from_millis(50);
const RUNS: usize = 4;

/// Runs a fault, prints its row of the table in docs/faults.md, and fails if clients waited too long,
/// or if Redis was left alone for too long.
///
/// A run that misses a bar while the control shows a busy machine is repeated, up to 4 runs in all.
/// If none of them was calm, the calmest one is judged. Then the longest wait of the control is added
/// to the bar, because a request that passes through Redis waits for a processor more often than one
/// of the control.
pub(crate) async fn measured(run: impl AsyncFn() -> Figures) {
    let mut runs: Vec<Figures> = Vec::new();
    while runs.len() < RUNS {
        let figures = run().await;
        let Figures { control, .. } = figures;
        let calm = control.p99 <= CALM && control.max <= STALLED;
        match misses(&figures, control.p99.min(CALM)) {
            None => return figures.row.print(),
            Some(miss) if calm => panic!("{miss}"),
            Some(miss) => repeated(&format!("the machine was busy, as the control shows: {miss}")),
        }
        runs.push(figures);
    }
    let calmest = runs.iter().min_by_key(|figures| figures.control.p99).expect("some runs");
    if let Some(miss) = misses(calmest, calmest.control.max) {
        panic!("{miss}");
    }
    calmest.row.print();
}

/// Returns which bar these figures miss, if the machine adds `machine` to a wait.
fn misses(figures: &Figures, machine: Duration) -> Option<String> {
    let Figures { server, control, recovered, .. } = figures;
    // The deadline, and what the machine adds; timers tick in milliseconds.
    let allowed = Duration::from_millis(50) + machine.max(Duration::from_millis(10));
    if server.p99 > allowed {
        Some(format!("p99 {:?}, of the control {:?}", server.p99, control.p99))
    } else if *recovered >= Duration::from_secs(2) {
        Some(format!("recovered {recovered:?} after the end"))
    } else if !figures.is_unnoticed && figures.degraded.is_none() {
        Some("the fault was not felt".to_owned())
    } else if figures.is_unnoticed && figures.fell_back > 0 && machine <= CALM {
        // A busy machine alone makes checks miss their deadline.
        Some(format!("{} checks were not decided by Redis", figures.fell_back))
    } else {
        None
    }
}

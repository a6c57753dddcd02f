//! A server, its control and their load, while a fault comes and goes.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Clock, SystemClock};

use crate::{ALONE, figures::Figures, load::Loading, server::Serving};

/// What stands and falls during one run.
pub(crate) struct Stage<'a> {
    what: &'a str,
    /// What the server connects to.
    store: String,
    /// Of the server's process.
    environment: &'a [(&'a str, &'a str)],
    /// How often the data of Redis begins anew.
    lives: u64,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(what: &'a str, store: String) -> Self {
        Self { what, store, environment: &[], lives: 1 }
    }

    /// The server's process has these variables, too.
    pub(crate) fn in_environment(mut self, environment: &'a [(&'a str, &'a str)]) -> Self {
        self.environment = environment;
        self
    }

    /// Redis forgets everything once.
    pub(crate) fn loses_data(mut self) -> Self {
        self.lives += 1;
        self
    }

    /// Injects a fault for a second under load. `end` returns when Redis can serve again.
    pub(crate) async fn bear(
        self,
        begin: impl AsyncFnOnce(&Serving),
        end: impl AsyncFnOnce(&Serving),
    ) -> Figures {
        let _alone = ALONE.lock().await;
        let Self { what, store, environment, lives } = self;
        let (server, control) = (Serving::start(&store, environment), Serving::control());
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
        let figures = Figures::of(&load.end(), began, ended, lives);
        eprintln!("measured: {what}: {figures}");

        // Of a busy machine, too: who waits longer hears nothing else.
        assert_eq!(figures.errors, 0, "{what}: clients hear nothing of it");
        assert_eq!(figures.wrong, 0, "{what}: beyond the bound");
        assert!(figures.degraded.is_some(), "{what}: the fault was felt");
        figures
    }
}

/// What the control's requests take on a machine that has time to measure.
const CALM: Duration = Duration::from_millis(20);

/// Judges how long clients waited, and for how long Redis was left alone, in a run during which
/// nothing else disturbed the control; of four, the calmest has to do.
pub(crate) async fn measured(run: impl AsyncFn() -> Figures) {
    let mut calmest = run().await;
    for _ in 0..3 {
        if calmest.control.p99 <= CALM {
            break;
        }
        eprintln!("the machine was busy, as the control shows: once more");
        let figures = run().await;
        if figures.control.p99 < calmest.control.p99 {
            calmest = figures;
        }
    }
    let Figures { server, control, recovered, .. } = calmest;
    // The deadline, and what the machine adds; timers tick in milliseconds.
    let allowed = Duration::from_millis(50) + control.p99.max(Duration::from_millis(10));
    assert!(server.p99 <= allowed, "p99 {:?}, of the control {:?}", server.p99, control.p99);
    assert!(recovered < Duration::from_secs(2), "recovered {recovered:?} after the end");
}

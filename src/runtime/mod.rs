//! The tokio runtime of the caller: waits with a limit, and work that runs at most once at a time.

mod background_task;
#[cfg(feature = "redis")]
mod single_flight;
mod time_limit;

#[cfg(feature = "redis")]
pub(crate) use self::{
    background_task::is_own_thread,
    single_flight::{FlightError, SingleFlight},
    time_limit::Elapsed,
};
pub(crate) use self::{
    background_task::{BackgroundTask, RunningFlag, RunningGuard, run_on_own_thread},
    time_limit::{
        MovingAverage, SchedulingDelay, TIMER_RESOLUTION, TimeLimit, runtime_with_timer,
        saturating_add,
    },
};

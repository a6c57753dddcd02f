//! The tokio runtime of the caller: waits with a limit, and work that runs at most once at a time.

mod background_task;
#[cfg(feature = "redis")]
mod single_flight;
mod time_limit;

#[cfg(feature = "redis")]
pub(crate) use self::{
    background_task::RunningFlag,
    single_flight::{FlightError, SingleFlight},
};
pub(crate) use self::{
    background_task::{BackgroundTask, TaskRuntime},
    time_limit::{Elapsed, TimeLimit, is_backlogged, runtime_with_timer, saturating_add},
};

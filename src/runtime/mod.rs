//! The tokio runtime of the caller: waits with a limit, and work that runs at most once at a time.

mod background_task;
mod moving_average;
mod own_thread;
mod scheduling_delay;
#[cfg(feature = "redis")]
mod single_flight;
mod time_limit;

pub(crate) use self::{
    background_task::{BackgroundTask, RunningFlag},
    moving_average::MovingAverage,
    own_thread::run_on_own_thread,
    time_limit::{TIMER_RESOLUTION, TimeLimit, before, runtime_with_timer, saturating_add},
};
#[cfg(feature = "redis")]
pub(crate) use self::{
    own_thread::is_own_thread,
    single_flight::{FlightError, SingleFlight},
};

pub use self::scheduling_delay::SchedulingDelay;

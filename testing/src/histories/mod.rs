//! Random histories, played against a limiter and the oracle side by side.

mod history;
mod judge;
mod penalties;
pub mod rollout;
mod run;
mod spending;
pub mod trials;

pub use self::{
    history::{Change, Cost, Family, History, Move, Part, PlannedCharge, Step, histories, leased},
    run::{Admitted, Changed, Held, Player, run},
};

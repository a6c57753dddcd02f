//! Lookups of rows in a database, for rules.
//!
//! A request passes through these files in order:
//!
//! 1. `lookups`, beside this folder: starts the lookups of the rules that apply to it, and stores their results in its
//!    extensions;
//! 2. `state`: makes the key of the lookup, and answers from the cache or waits for a load;
//! 3. `rows`: the cache of rows and of keys without a row;
//! 4. `loads`: the tasks of loads, and the requests that wait for them;
//! 5. `schedule`: which loads run, wait or are refused, at most one for each key: by the `queue` in which
//!    clients take turns, and by the measured time of loads.
//!
//! `lookup` is the handle of applications: its settings, and the closures over rows.

mod load;
mod loads;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod lookup;
mod queue;
mod rows;
mod schedule;
mod state;

pub use self::lookup::Lookup;

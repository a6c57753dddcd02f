//! Leases: units of busy keys that this process takes in bulk and spends by itself.
//!
//! | file | content |
//! |---|---|
//! | `requests` | the requests of a limiter: read this first |
//! | `check` | a check: the stock pays what it can, and the store is asked for the rest |
//! | `leases` | the stocks of all keys, and the attempts to pay from them |
//! | `stocks` | the other changes of the stocks: refunds, resets, the standings of peeks |
//! | `stock`, `grant`, `demand` | the state machine of one key, without a clock and without I/O |
//! | `table`, `candidates` | the stocks of the busy keys, and the search for busy keys |
//! | `renewal` | the task that asks the store for more units |
//! | `keeper` | the task that refunds units to the store, and the close |

mod candidates;
mod check;
mod demand;
mod grant;
mod keeper;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod leases;
mod renewal;
mod requests;
mod stock;
mod stocks;
mod table;

pub(super) use self::{
    check::acquire_one,
    keeper::close,
    leases::Leases,
    requests::{call, concerns},
};

#[cfg(test)]
mod model;

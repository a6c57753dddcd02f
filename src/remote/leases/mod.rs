//! Leases: units of busy keys that this process takes in bulk and spends by itself.
//!
//! | file | content |
//! |---|---|
//! | `check` | a check: read this first |
//! | `requests` | the other requests |
//! | `leases` | the stocks above the guarded store, and the tasks that renew and refund them |
//! | `keeper` | the task that refunds units to the store |
//! | `renewal` | the task that asks the store for more units |
//! | `stocks` | the stocks of all keys: payments, refunds, resets |
//! | `table` | the entries of the busy keys |
//! | `stock`, `grants`, `demand` | the state machine of one key, without a clock and without I/O |

mod check;
mod demand;
mod grants;
mod keeper;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod leases;
mod renewal;
mod requests;
mod stock;
mod stocks;
mod table;

pub(super) use self::{leases::Leases, requests::concerns};

#[cfg(test)]
#[path = "../../../tests/leases/model/mod.rs"]
mod model;

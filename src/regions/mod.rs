//! A store over a regional store and a home store, for services in several regions.
//!
//! # Why the sum is never over
//!
//! 1. [`shares`] divides each limit `L` into a share `g` for each of `n` regions and a pool `P`, with
//!    `n * g + P = L`. Each charge is paid by one part, under the quota of that part.
//! 2. A part is one key of one server, which holds its bound in every window by its own clock, for all
//!    callers and also when replies are lost. A refund goes to the part that has paid, by its mark.
//! 3. A leased unit is used within the lease from the part that granted it, and that part counts by
//!    [`Quota::counted`](crate::Quota::counted), so its bound holds for the units that are used.
//! 4. So any window holds at most the sum of the bounds: `n * g + P = L` for logs and buckets, and
//!    likewise the sums of twice the limit, or of burst and limit, for the others.
//!
//! No step compares two clocks, or needs a message to arrive.
//!
//! # Stages
//!
//! Each of the two stores is behind a [`Pipeline`](crate::remote::Pipeline) of its own, with its own
//! breaker, deny cache and leases. One pipeline around both stores could have none of them:
//!
//! - Leases: units that the region leases from the pool, and a process from the region, would be used
//!   for twice the time of a lease.
//! - Deny cache: a charge that both parts together deny may pass in one of them.
//! - Breaker: a slow home would open the breaker for the regional store, too.
//! - Fallback: it would decide by the whole quota. That of the regional store decides by the share, and
//!   what needs the pool is denied while the home does not answer.
//!
//! | file | content |
//! |---|---|
//! | `shares` | the arithmetic |
//! | `divided_line` | one charge, and the replies of its parts |
//! | `stores` | the two pipelines, and the waits for them |
//! | `check` | a check over both parts |
//! | `force` | charges beyond the limit |
//! | `both` | peeks, resets, blocks and refunds |

mod both;
mod check;
mod config;
mod divided_line;
mod force;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod regions;
mod shares;
mod stores;

pub use self::{config::RegionsConfig, regions::Regions};

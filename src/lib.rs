//! tollgate
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod charge;
mod clock;
mod decision;
mod error;
mod few;
mod key;
mod limiter;
mod policy;
mod quota;
mod standing;
pub mod store;

pub use algorithm::{Algorithm, Mark};
pub use charge::{Charge, OnFailure};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use decision::{Allowed, Decision, Denied, Outcome, Receipt, Spent};
pub use error::{Error, ErrorKind};
pub use key::{Identity, Key};
pub use limiter::{Limiter, Reservation, Reserve};
pub use policy::Policy;
pub use quota::Quota;
pub use standing::Standing;

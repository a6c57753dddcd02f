//! The decisions of this process while the store cannot answer, and the return of the store.
//!
//! [`Fallback`] decides. The units that it admits go into the [`backlog`], and [`replay`] charges them to
//! the store when it answers again.

mod backlog;
#[expect(clippy::module_inception, reason = "the file of the type that the folder is named after")]
mod fallback;
mod replay;

pub(super) use self::fallback::{Cause, Fallback};

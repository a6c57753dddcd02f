//! Resolutions of host names that tolerate name servers that do not answer.
//!
//! The system's resolver, `getaddrinfo`, blocks its thread until a name server answers or the
//! resolver gives up, usually after 10 to 30 seconds, and it cannot be cancelled. Each resolution
//! therefore runs in a thread of its own, not in one of the threads that tokio keeps for blocking
//! work. While a resolution hangs:
//!
//! - another resolution is started twice a second. A resolution that starts after the name server has
//!   recovered is answered at once, while the one that hangs may need five more seconds to notice;
//! - [`Pacing`] bounds the number of resolutions that run;
//! - connections are opened to the addresses that the last resolution of the host found.

mod pacing;
mod resolver;

use self::pacing::{Pacing, Ticket};
pub(super) use self::resolver::Resolver;

//! The responses to requests that are not admitted: problem documents, plain text, and gRPC.

mod denial;
mod grpc;
mod rejection;

pub(super) use self::denial::{DenialFormat, OnRejected};
pub use self::{
    denial::DenialResponse,
    rejection::{Rejection, RejectionKind},
};

//! The responses to requests that are not admitted: problem documents, plain text, and gRPC.

mod denial_format;
mod denial_response;
mod grpc_content_type;
mod grpc_details;
mod grpc_status;
mod rejection;

pub(super) use self::denial_format::{DenialFormat, OnRejected};
pub use self::{
    denial_response::DenialResponse,
    rejection::{Rejection, RejectionKind},
};

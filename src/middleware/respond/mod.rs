//! The responses to requests that are not admitted: problem documents, plain text, and gRPC.

pub(super) mod grpc;
mod rejection;

pub use self::rejection::{DenialResponse, Rejection, RejectionKind};

//! The responses to requests that are not admitted: problem documents, plain text, and gRPC.

mod denial;
mod grpc;
mod grpc_content_type;
mod grpc_status;
mod problem;
mod response;
mod text;

pub(super) use self::denial::DenialFormat;

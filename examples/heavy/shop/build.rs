//! Generates the gRPC service of the examples `grpc` and `grpc_client`. A service with a `.proto` file uses
//! `tonic_prost_build::compile_protos` instead, which needs `protoc`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let orders = Service::builder()
        .name("Orders")
        .package("shop")
        .method(method("place", "Place"))
        .method(method("quote", "Quote"))
        .build();
    Builder::new().compile(&[orders]);
}

fn method(name: &str, route: &str) -> Method {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type("crate::shop::Order")
        .output_type("crate::shop::Placed")
        .codec_path("tonic_prost::ProstCodec")
        .build()
}

//! Clients that others have written: two gRPC stacks of Python, with the messages of another project.

use std::process::Command;

use crate::{
    limits::{LIMITS, written},
    proxy::programs,
    service::Service,
};

#[test]
fn python_clients_are_answered() {
    let service = Service::start(&written(LIMITS), None);
    let output = Command::new(format!("{}/python3", programs()))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/envoy_proxy/client.py"))
        .arg(service.port.to_string())
        .output()
        .expect("Python is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.trim().lines().last(), Some("ok"), "{text}");
}

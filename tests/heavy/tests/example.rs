//! Starts the examples `grpc` and `reqwest`.
#![cfg(any(feature = "reqwest", feature = "tonic"))]

use plimsoll_testing::example::{program, start};

#[cfg(feature = "tonic")]
#[test]
fn grpc() {
    use std::time::Duration;

    use tokio::time::Instant;

    let example = start("grpc");
    let start = Instant::now();
    let client = program("grpc_client")
        .env("SERVER", format!("http://{}", example.address))
        .output()
        .unwrap();
    let text = String::from_utf8(client.stdout).unwrap();
    assert!(client.status.success(), "{text}");
    // The third order waits until the first one has left the window.
    assert_eq!(
        text,
        "order 1: 500 cents\norder 2: 500 cents\ndenied for 3 s\norder 3: 500 cents\n"
    );
    assert!(start.elapsed() >= Duration::from_millis(2_900));

    // One budget for both protocols: 1 or 2 of 5 units are spent.
    let admitted = (0..6).filter(|_| example.get("/").status == 200).count();
    assert!((3..=4).contains(&admitted), "{admitted}");
    assert_eq!(example.get("/").status, 429);
}

#[cfg(feature = "reqwest")]
#[test]
fn reqwest() {
    let output = program("reqwest").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    // Without pauses, the service denies four of them.
    assert_eq!(text.matches("200 OK, hello").count(), 7, "{text}");
}

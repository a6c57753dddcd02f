//! Starts the examples `grpc` and `reqwest`.

use plimsoll_testing::example::{program, start};

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
    // The third order waits until the first one has left the window. On a slow machine, a part of that time has
    // passed before the denial.
    let denied = (1..=3).find(|seconds| {
        let denied = format!("denied for {seconds} s");
        text == format!("order 1: 500 cents\norder 2: 500 cents\n{denied}\norder 3: 500 cents\n")
    });
    assert!(denied.is_some(), "{text}");
    assert!(start.elapsed() >= Duration::from_millis(2_900));

    // One budget for both protocols: at most 2 of 5 units in 3 s are spent. On a machine that stands still, the
    // units come back.
    let window = Duration::from_secs(3);
    for _ in 0..10 {
        let begin = Instant::now();
        let statuses: Vec<_> = (0..7).map(|_| example.get("/").status).collect();
        if begin.elapsed() < window {
            let admitted = statuses.iter().filter(|status| **status == 200).count();
            assert!((3..=5).contains(&admitted), "{statuses:?}");
            assert_eq!(statuses.last(), Some(&429));
            return;
        }
        std::thread::sleep(window);
    }
    panic!("the machine is late all the time");
}

#[test]
fn reqwest() {
    let output = program("reqwest").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    // Without pauses, the service denies four of them.
    assert_eq!(text.matches("200 OK, hello").count(), 7, "{text}");
}

//! The end of the service: no answer is lost, and nothing waits for ever.

use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use plimsoll_testing::servers::{PATIENCE, Server};

use crate::{
    checks::until,
    support::{Service, exchange},
};

const CHECK: &str = "{\"charges\":[{\"policy\":\"demo\",\"key\":\"alice\",\"cost\":1}]}";

fn request() -> Vec<u8> {
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{CHECK}",
        CHECK.len()
    )
    .into_bytes()
}

#[test]
fn no_answer_is_lost_under_load() {
    // The second signal ends the drain.
    let mut service = Service::start(&["--drain", "60s"]);
    let start = Instant::now();
    let (answered, closed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(&service.http).unwrap();
                // A client whose connection is closed goes to another instance.
                loop {
                    let reply =
                        exchange(&mut stream, &request()).expect("each request is answered");
                    assert!(matches!(reply.status, 200 | 429), "{reply:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                    if reply.header("connection") == Some("close") {
                        closed.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
        sleep(Duration::from_millis(300));
        service.signal("TERM");
        // New clients are still answered, until the load balancer has seen that the service is not ready.
        sleep(Duration::from_millis(100));
        let health = service.get("/healthcheck");
        assert_eq!((health.status, health.text()), (503, "not ready\n".to_owned()));
        assert!(matches!(service.check("demo", "alice", 1).status, 200 | 429));
        service.signal("TERM");
    });
    assert!(start.elapsed() < Duration::from_secs(55), "the second signal ends the drain");
    assert_eq!(closed.load(Ordering::Relaxed), 16);
    assert!(answered.load(Ordering::Relaxed) > 16);
    let (status, rest) = service.wait(PATIENCE);
    assert_eq!(status.code(), Some(0));
    assert_eq!(rest, "");
}

#[test]
fn a_request_in_flight_is_answered_and_a_slow_one_is_not_awaited() {
    // Longer than a busy machine stands still.
    let mut service = Service::start(&["--drain", "0s", "--shutdown-timeout", "5s"]);
    let (head, body) = (request(), CHECK.len());
    let (first, rest) = head.split_at(head.len() - body / 2);
    let mut in_flight = TcpStream::connect(&service.http).unwrap();
    in_flight.write_all(first).unwrap();
    let mut stuck = TcpStream::connect(&service.http).unwrap();
    stuck.write_all(first).unwrap();
    sleep(Duration::from_millis(200));
    let start = Instant::now();
    service.signal("TERM");
    // The listener is closed, and the answer still comes.
    until(|| TcpStream::connect(&service.http).is_err());
    assert_eq!(exchange(&mut in_flight, rest).unwrap().status, 200);
    let (status, _) = service.wait(PATIENCE);
    assert_eq!(status.code(), Some(0));
    assert!(start.elapsed() > Duration::from_secs(1), "the other one was awaited too");
    assert!(service.log().contains("end without an answer"), "{}", service.log());
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut service = Service::start(&["--drain", "1h", "--shutdown-timeout", "1h"]);
    let request = request();
    let mut stuck = TcpStream::connect(&service.http).unwrap();
    stuck.write_all(&request[..request.len() - 1]).unwrap();
    sleep(Duration::from_millis(200));
    service.signal("TERM");
    until(|| service.get("/healthcheck").status == 503);
    service.signal("TERM"); // ends the drain
    until(|| TcpStream::connect(&service.http).is_err());
    service.signal("INT"); // cuts the connection
    assert_eq!(service.wait(PATIENCE).0.code(), Some(0));
}

#[test]
fn leased_units_go_back_to_the_store() {
    let redis = Server::start();
    let folder = plimsoll_testing::servers::directory();
    let file = folder.join("limits.toml");
    // A busy machine does not reach this deadline, so that Redis counts all units.
    let limits = "policies.api = '100000/h leased(30s)'\nresilience.deadline = '20s'";
    std::fs::write(&file, limits).unwrap();
    let (file, url) = (file.to_str().unwrap().to_owned(), redis.url());
    let flags = ["--config", &*file, "--redis", &*url, "--drain", "0s"];
    let mut first = Service::start(&flags);
    let second = Service::start(&flags);
    let leased = |service: &Service| {
        let start = Instant::now();
        loop {
            let reply = service.check("api", "alice", 1);
            assert_eq!(reply.status, 200);
            if reply.json()["source"] == "leased" {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "nothing is leased");
        }
    };
    leased(&first);
    let counted = |service: &Service| {
        let reply =
            service.post("/v1/peek", "{\"charges\":[{\"policy\":\"api\",\"key\":\"alice\"}]}");
        100_000 - reply.json()["charges"][0]["remaining"].as_u64().unwrap()
    };
    let before = counted(&second);
    first.signal("TERM");
    assert_eq!(first.wait(PATIENCE).0.code(), Some(0));
    let after = counted(&second);
    assert!(after < before, "{before} units are counted, and {after} after the end");
    let _ = std::fs::remove_dir_all(folder);
}

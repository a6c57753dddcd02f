//! Slow clients, and many of them. They cannot keep others from an answer.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::support::{Service, exchange};

const REQUEST: &[u8] = b"GET /healthcheck HTTP/1.1\r\nhost: x\r\n\r\n";

/// Returns the time until the service closes a connection, while `feed` sends to it.
fn closed_after(stream: &mut TcpStream, mut feed: impl FnMut(&mut TcpStream)) -> Duration {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    loop {
        assert!(start.elapsed() < Duration::from_secs(20), "it stays open");
        feed(stream);
        match stream.read(&mut [0; 1_024]) {
            Ok(0) => return start.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return start.elapsed(),
        }
    }
}

#[test]
fn a_head_that_comes_byte_by_byte_is_not_awaited() {
    let service = Service::start(&["--head-timeout", "500ms", "--idle-timeout", "10s"]);
    let dribble = |stream: &mut TcpStream| drop(stream.write_all(b"x"));
    let mut fresh = TcpStream::connect(&service.http).unwrap();
    fresh.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    let time = closed_after(&mut fresh, dribble);
    assert!((400..5_000).contains(&time.as_millis()), "{time:?}");
    // Also after a request that was answered.
    let mut used = TcpStream::connect(&service.http).unwrap();
    assert_eq!(exchange(&mut used, REQUEST).unwrap().status, 200);
    used.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    let time = closed_after(&mut used, dribble);
    assert!((400..6_000).contains(&time.as_millis()), "{time:?}");
    // Headers of HTTP/2 that do not end.
    let mut http2 = TcpStream::connect(&service.http).unwrap();
    http2.write_all(b"PR").unwrap();
    let time = closed_after(&mut http2, |_| {});
    assert!(time.as_millis() < 6_000, "{time:?}");
}

#[test]
fn a_body_that_comes_byte_by_byte_gets_an_answer_in_time() {
    let service = Service::start(&["--request-timeout", "500ms"]);
    let mut stream = TcpStream::connect(&service.http).unwrap();
    let head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                 content-length: 100\r\n\r\n{";
    let start = Instant::now();
    let reply = exchange(&mut stream, head).unwrap();
    assert_eq!(reply.status, 408, "{}", reply.text());
    crate::support::assert_described("POST", "/v1/check", &reply);
    assert!((400..5_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    let time = closed_after(&mut stream, |_| {});
    assert!(time < Duration::from_secs(10), "{time:?}");
}

#[test]
fn a_request_that_no_handler_ends_gets_a_problem_document() {
    let folder = plimsoll_testing::servers::directory();
    let limits = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 2}}]\n";
    std::fs::write(folder.join("shop.yaml"), limits).unwrap();
    let service =
        Service::start(&["--request-timeout", "500ms", "--envoy-config", folder.to_str().unwrap()]);
    let mut stream = TcpStream::connect(&service.http).unwrap();
    let head = b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    let reply = exchange(&mut stream, head).unwrap();
    assert_eq!((reply.status, reply.field("title")), (408, "Too slow".to_owned()));
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_connection_without_a_request_is_closed() {
    let service = Service::start(&["--idle-timeout", "500ms"]);
    let mut silent = TcpStream::connect(&service.http).unwrap();
    let mut used = TcpStream::connect(&service.http).unwrap();
    assert_eq!(exchange(&mut used, REQUEST).unwrap().status, 200);
    let mut http2 = TcpStream::connect(&service.grpc).unwrap();
    let begin = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    http2.write_all(&begin).unwrap();
    // A connection that is used stays open, although it is older than the timeout. A client that stands still
    // for as long as the timeout tries again with another connection.
    let stays_open = || {
        let mut busy = TcpStream::connect(&service.http).unwrap();
        let mut last = Instant::now();
        (0..6).all(|_| {
            let reply = exchange(&mut busy, REQUEST);
            let was_late = last.elapsed() > Duration::from_millis(400);
            assert!(was_late || reply.as_ref().is_ok_and(|reply| reply.status == 200), "{reply:?}");
            last = Instant::now();
            sleep(Duration::from_millis(150));
            !was_late
        })
    };
    assert!((0..10).any(|_| stays_open()), "the machine is late all the time");
    for stream in [&mut silent, &mut used, &mut http2] {
        let time = closed_after(stream, |_| {});
        assert!(time < Duration::from_secs(5), "{time:?}");
    }
}

#[test]
fn clients_that_hold_all_connections_lose_them() {
    let service =
        Service::start(&["--max-connections", "8", "--head-timeout", "1s", "--idle-timeout", "1s"]);
    let mut held: Vec<_> = (0..8).map(|_| TcpStream::connect(&service.http).unwrap()).collect();
    for stream in &mut held {
        stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    }
    let mut more: Vec<_> = (0..8).map(|_| TcpStream::connect(&service.http).unwrap()).collect();
    for stream in &mut more {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
    }
    // The queue is served when the connections before it have been closed.
    let start = Instant::now();
    assert_eq!(service.check("demo", "alice", 1).status, 200);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn a_client_that_reads_no_answers_is_cut_off() {
    let service = Service::start(&["--idle-timeout", "500ms"]);
    let mut stream = TcpStream::connect(&service.http).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    // Until the buffers of both sides are full.
    while stream.write_all(&request).is_ok() {}
    let start = Instant::now();
    loop {
        let metrics = service.get("/metrics").text();
        if metrics.contains("plimsoll_server_connections{listener=\"http\"} 1") {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(15), "{metrics}");
        sleep(Duration::from_millis(100));
    }
}

/// Returns a frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the frames of a call of a gRPC method with an empty message.
fn call(path: &str, stream: u32) -> Vec<u8> {
    // Each header is a literal that is not indexed (RFC 7541, section 6.2.2).
    let literal = |(name, value): (&str, &str)| {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        [vec![0], text(name), text(value)].concat()
    };
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let headers: Vec<u8> = headers.into_iter().flat_map(literal).collect();
    [frame(1, 4, stream, &headers), frame(0, 1, stream, &[0; 5])].concat()
}

#[test]
fn a_long_response_arrives_whole_over_both_versions() {
    let service = Service::start(&[]);
    let url = format!("http://{}/openapi.json", service.http);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let curl = Command::new("curl").args(["--silent", "--fail", version, &url]).output();
        assert_eq!(curl.unwrap().stdout, include_bytes!("../../openapi.json"), "{version}");
    }
}

#[test]
fn a_client_that_takes_no_answers_loses_its_old_connection() {
    let flags = ["--max-connection-age", "1s", "--request-timeout", "500ms"];
    let service = Service::start(&flags);
    for (path, window) in [
        ("/grpc.health.v1.Health/Check", 0),
        ("/grpc.health.v1.Health/Check", 1),
        ("/grpc.health.v1.Health/Watch", 0),
    ] {
        let mut stream = TcpStream::connect(&service.grpc).unwrap();
        // SETTINGS_INITIAL_WINDOW_SIZE, and the window is never made larger.
        let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, window]);
        let begin = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat();
        stream.write_all(&begin).unwrap();
        // Pings and further requests do not hold the connection.
        let mut next = 1;
        let time = closed_after(&mut stream, |stream| {
            sleep(Duration::from_millis(20));
            drop(stream.write_all(&[frame(6, 0, 0, &[0; 8]), call(path, next)].concat()));
            next += 2;
        });
        assert!((900..10_000).contains(&time.as_millis()), "{path}, {window}: {time:?}");
    }
}

#[test]
fn an_old_connection_ends_behind_an_answer() {
    let service = Service::start(&["--max-connection-age", "500ms"]);
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&service.http).unwrap();
        let opened = Instant::now();
        loop {
            let reply = exchange(&mut stream, REQUEST).expect("each request is answered");
            assert_eq!(reply.status, 200);
            if reply.header("connection") == Some("close") {
                break;
            }
            assert!(opened.elapsed() < Duration::from_secs(10), "it stays open");
        }
        assert!(opened.elapsed().as_millis() >= 400, "{:?}", opened.elapsed());
    }
}

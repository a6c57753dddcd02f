//! Starts each example and sends it real requests.
#![cfg(feature = "axum")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
    thread,
    time::Duration,
};

use plimsoll_testing::example::{Example, Reply, program, start};
#[cfg(feature = "redis")]
use plimsoll_testing::{example::start_program, servers::Server};

fn remaining(reply: &Reply) -> Option<u64> {
    let at = reply.head.find("x-ratelimit-remaining: ")? + 23;
    reply.head[at..].split("\r\n").next()?.parse().ok()
}

/// A newcomer who pastes the first program gets the answers that the README promises.
#[test]
fn the_first_program_of_the_readme() {
    let readme = std::fs::read_to_string("README.md").unwrap();
    let (_, block) = readme.split_once("```rust").unwrap();
    let (_, pasted) = block.split_once('\n').unwrap();
    let (pasted, _) = pasted.split_once("```").unwrap();
    let compiled = std::fs::read_to_string("examples/first.rs").unwrap();
    let (_, compiled) = compiled.split_once("\n\n").unwrap();
    assert_eq!(pasted.replace("\"127.0.0.1:3000\"", "std::env::var(\"ADDR\")?"), compiled);
    let example = start("first");
    for left in (0..100).rev() {
        let reply = example.get("/");
        assert_eq!((reply.status, remaining(&reply), &*reply.body), (200, Some(left), "hello"));
    }
    assert_eq!(example.get("/").status, 429);
}

#[test]
fn quickstart() {
    let example = start("quickstart");
    for (path, status, left) in [
        ("/", 200, 4),
        ("/expensive", 200, 1),
        ("/expensive", 429, 1),
        ("/", 200, 0),
        ("/", 429, 0),
    ] {
        let reply = example.get(path);
        assert_eq!((reply.status, remaining(&reply)), (status, Some(left)), "{path}");
        assert_eq!(reply.head.contains("retry-after: "), status == 429);
        assert!(reply.head.contains("ratelimit-policy: \"demo\";q=5;w=10"));
    }
    let huge = example.get("/huge");
    assert_eq!(huge.status, 403);
    assert!(!huge.head.contains("retry-after"));
    for _ in 0..10 {
        let health = example.get("/health");
        assert_eq!((health.status, remaining(&health)), (200, None));
    }
    let alice = example.send("GET", "/", &[("x-api-key", "alice")], "");
    assert_eq!((alice.status, remaining(&alice)), (200, Some(4)), "a quota of her own");
}

#[cfg(feature = "metrics")]
#[test]
fn prometheus() {
    let example = start("prometheus");
    let statuses: Vec<_> = (0..7).map(|_| example.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    let page = example.get("/metrics").body;
    for (outcome, count) in [("allowed", 5), ("denied", 2)] {
        let line =
            format!(r#"plimsoll_decisions_total{{policy="api",outcome="{outcome}"}} {count}"#);
        assert!(page.contains(&line), "{page}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn hot_key_returns_its_units_when_it_is_terminated() {
    let server = Server::start();
    let start = || {
        let mut program = program("hot_key");
        start_program(program.env("REDIS_URL", server.url()).env("QUOTA", "1000/h leased(60s)"))
    };
    let mut first = start();
    for _ in 0..100 {
        assert_eq!(first.get("/").status, 200);
    }
    assert_eq!(first.get("/batch?cost=20").status, 200);
    // It decides by itself: most of its requests need no command.
    let info: String = server.info("commandstats", "cmdstat_evalsha");
    let calls =
        info.split("calls=").nth(1).and_then(|it| it.split(',').next()?.parse::<u64>().ok());
    assert!(calls.is_some_and(|calls| calls < 30), "{info}");

    let pid = first.process.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(first.process.wait().unwrap().success());
    let second = start();
    assert_eq!(remaining(&second.get("/")), Some(1000 - 120 - 1));
    // Another key has a quota of its own.
    let alice = second.send("GET", "/", &[("x-api-key", "alice")], "");
    assert_eq!(remaining(&alice), Some(999));
}

/// Sends requests to a region until none is admitted any more, and returns the number of those admitted.
/// The requests after a denial take longer than the home needs to grant a lease.
#[cfg(feature = "redis")]
fn drain(region: &Example) -> u32 {
    let (mut admitted, mut denied) = (0, 0);
    // Longer than a busy machine takes to lease units of a home that is far away.
    while denied < 100 {
        match region.get("/").status {
            200 => (admitted, denied) = (admitted + 1, 0),
            429 => {
                denied += 1;
                thread::sleep(Duration::from_millis(10));
            }
            status => panic!("{status}"),
        }
    }
    admitted
}

#[cfg(feature = "redis")]
#[test]
fn regions_share_a_quota() {
    let [east, west] = [(); 2].map(|()| Server::start());
    let mut home = Server::start();
    let start = |region: &Server, home: &Server, delay: &str, quota: &str| {
        let mut program = program("regions");
        program.env("REGION_REDIS_URL", region.url()).env("HOME_REDIS_URL", home.url());
        start_program(program.env("HOME_DELAY", delay).env("QUOTA", quota))
    };
    // Shares of 35, and a pool of 30.
    let [first, second] = [&east, &west].map(|region| start(region, &home, "0ms", "100/h"));
    let reply = first.get("/");
    assert!(reply.head.contains("ratelimit-policy: \"everywhere\";q=100;w=3600"), "{}", reply.head);
    assert_eq!(1 + drain(&first), 65);
    assert_eq!(drain(&second), 35);

    // The home is too far away to be waited for, so its units are leased.
    let [east, west] = [(); 2].map(|()| Server::start());
    let quota = "2000/h leased(60s)";
    let [first, second] = [&east, &west].map(|region| start(region, &home, "100ms", quota));
    let (first, second) = (drain(&first), drain(&second));
    assert!(first > 700, "{first}: more than its share");
    assert!(second > 500 && first + second <= 2000, "{first} + {second}");

    // Without its home, a region starts, and has its share.
    home.kill();
    let alone = Server::start();
    assert_eq!(drain(&start(&alone, &home, "0ms", "100/h")), 35);
}

#[test]
fn boundary() {
    let output = program("boundary").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("fixed-window         50 + 50 = 100 units"), "{text}");
    assert!(text.contains("sliding-log          50 + 0 = 50 units"), "{text}");
}

#[test]
fn trial() {
    let output = program("trial").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for line in [
        "denied by the live limit of 100:    200",
        "a shadow of 200 would deny:         0",
        "a trial of 200 would deny:          100",
        "allowed by both, by the trial only, by none: 100, 100, 100",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn per_route() {
    let example = start("per_route");
    let count = |method: &str, path: &str, times: usize| {
        (0..times).filter(|_| example.send(method, path, &[], "").status == 200).count()
    };
    assert_eq!(count("GET", "/search", 15), 10);
    assert_eq!(count("POST", "/login", 5), 3);
    // Denied requests spent nothing of the overall limit: 60 - 13.
    assert_eq!(count("GET", "/", 60), 47);
    let reply = example.get("/search");
    assert_eq!(reply.status, 429);
    assert!(reply.head.contains("retry-after: "));
    assert!(reply.head.contains("application/problem+json"));
    assert!(reply.body.contains(r#""violated-policies":["overall","search"]"#), "{}", reply.body);
}

#[test]
fn per_tier() {
    let example = start("per_tier");
    let count = |key: Option<&str>, times: usize| {
        let header = key.map(|key| ("x-api-key", key));
        let headers: Vec<_> = header.into_iter().collect();
        (0..times).filter(|_| example.send("GET", "/", &headers, "").status == 200).count()
    };
    assert_eq!(count(Some("free-a"), 12), 10);
    assert_eq!(count(Some("free-b"), 1), 1);
    assert_eq!(count(Some("basic-a"), 102), 100);
    assert_eq!(count(Some("premium-a"), 150), 150);
    // Made-up keys share the address's 5.
    assert_eq!(count(Some("gold-1"), 2), 2);
    assert_eq!(count(Some("gold-2"), 2), 2);
    assert_eq!(count(None, 3), 1);
    let reply = example.send("GET", "/", &[("x-api-key", "premium-b")], "");
    assert_eq!(reply.body, "policy premium, 999 left\n");
}

fn log_in(example: &Example, user: &str, password: &str) -> u16 {
    example.send("POST", "/login", &[], &format!("{user}:{password}")).status
}

#[test]
fn login() {
    let example = start("login");
    for _ in 0..8 {
        assert_eq!(log_in(&example, "alice", "open sesame"), 200, "success does not count");
    }
    let wrong: Vec<u16> = (0..4).map(|_| log_in(&example, "alice", "guess")).collect();
    assert_eq!(wrong, [401, 401, 401, 429]);
    assert_eq!(log_in(&example, "alice", "open sesame"), 429, "locked");
    assert_eq!(log_in(&example, "bob", "open sesame"), 200, "others are not");
}

#[test]
fn login_under_attack_never_gets_a_fourth_guess() {
    let example = start("login");
    for round in 0..5 {
        let user = format!("victim{round}");
        let statuses: Vec<u16> = thread::scope(|scope| {
            let attempts: Vec<_> =
                (0..24).map(|_| scope.spawn(|| log_in(&example, &user, "guess"))).collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
        });
        let guesses = statuses.iter().filter(|status| **status == 401).count();
        assert_eq!(guesses, 3, "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 401 | 429)));
    }
}

#[test]
fn tokens() {
    let example = start("tokens");
    let balance = || -> u64 { example.get("/balance").body.trim().parse().unwrap() };
    assert_eq!(balance(), 200);
    let reply = example.get("/chat?n=30");
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("token29"));
    assert_eq!(balance(), 170, "30 tokens, not the estimate of 50");
    assert_eq!(example.get("/chat?n=70").status, 200);
    assert_eq!(balance(), 100, "more than the estimate");

    // A client that disconnects pays for what was sent: one token each 10 ms.
    let start = tokio::time::Instant::now();
    let mut stream = TcpStream::connect(&example.address).unwrap();
    stream.write_all(b"GET /chat?n=1000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut some = [0; 600];
    stream.read_exact(&mut some).unwrap();
    assert_eq!(balance(), 50, "the estimate is held meanwhile");
    drop(stream);
    let mut left = 50;
    while left == 50 && start.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(10));
        left = balance();
    }
    let (sent, took) = (100 - left, start.elapsed());
    assert!(
        sent >= 1 && u128::from(sent) <= took.as_millis() / 10 && left != 50,
        "{sent} in {took:?}"
    );
}

#[test]
fn customers() {
    let example = start("customers");
    let ask = |key: &str| example.send("GET", "/", &[("x-api-key", key)], "");
    let count = |key: &str, times: usize| (0..times).filter(|_| ask(key).status == 200).count();
    assert_eq!(ask("initech-key").body, "hello initech, your plan is enterprise\n");
    assert!(ask("globex-key").head.contains("ratelimit-policy: \"api\";q=20;w=60"));
    assert_eq!(count("globex-key", 25), 19);
    assert_eq!(count("acme-key", 7), 5);
    assert_eq!(ask("initech-key").status, 200);
    // Invented keys share the limit of their address.
    assert_eq!(count("invented-1", 3) + count("invented-2", 4), 5);
    // A limit that is changed acts within 2 s.
    let set = |path: &str, limit: &str| example.send("PUT", path, &[], limit).status;
    assert_eq!(set("/admin/limits/globex", "50/min"), 204);
    assert_eq!(set("/admin/limits/globex", "fifty"), 400);
    assert_eq!(set("/admin/limits/umbrella", "50/min"), 404);
    let start = tokio::time::Instant::now();
    while ask("globex-key").status != 200 && start.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(ask("globex-key").head.contains("x-ratelimit-limit: 50"));
}

#[test]
fn ingest() {
    let output = program("ingest").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("us-west: 14 of 20 searches done"), "{text}");
    assert!(text.contains("us-west: the budget is spent"), "{text}");
    assert!(text.contains("come back in 86"), "{text}");
    assert!(text.ends_with("4 of 8 regions done, 95 units left today\n"), "{text}");
}

/// An example that cannot reach its Redis serves on its fallback, and says why it does.
#[test]
fn a_redis_url_is_not_ignored() {
    let mut command = program("per_tier");
    command.env("REDIS_URL", "redis://127.0.0.1:1/").env("ADDR", "127.0.0.1:0");
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    // The connection may fail before the layer is made.
    let log = [lines.next(), lines.next()].map(|line| line.unwrap().unwrap()).join("\n");
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(log.contains("; store Redis (single server, database 0, 2 connections, "), "{log}");
    assert!(log.contains("WARN") && log.contains("cannot connect to Redis"), "{log}");
}

//! Several processes on one key: the bound holds, by the server's own clock.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

use plimsoll::{Decision, Limiter, RedisStore, redis::RedisConfig};
use plimsoll_testing::servers::{PATIENCE, Server};

use crate::{patient, policy};

const QUOTA: &str = "200/500ms";
/// The units that all processes spend together, at least.
const SPENT: u64 = 1_200;

/// The role of each process: it checks for 4 s, and on a slow machine until enough units are spent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: another test starts it"]
async fn worker() {
    let url = std::env::var("PLIMSOLL_TEST_URL").expect("a role");
    let limiter = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient()))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    );
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let short = policy("short", QUOTA);
                let (day, hour) =
                    (policy("day", "9000000/day fixed-window"), policy("hour", "5000/h"));
                let mut admitted = Vec::new();
                let (start, mut spent) = (tokio::time::Instant::now(), 0);
                while start.elapsed() < Duration::from_secs(4) || spent < SPENT {
                    assert!(start.elapsed() < PATIENCE, "{spent} units are spent");
                    let cost = 1 + task % 3;
                    let charges = [
                        day.charge("all", cost),
                        short.charge("all", cost),
                        hour.charge("all", cost),
                    ];
                    let decision = limiter.check(charges).await.expect("an answer");
                    let standing = *decision.outcomes().nth(2).expect("three charges").standing();
                    spent = standing.limit - standing.remaining;
                    match decision {
                        Decision::Allowed(allowed) => {
                            let receipt = allowed.into_receipt();
                            admitted.push((receipt.time.as_micros(), cost));
                        }
                        Decision::Denied(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                }
                admitted
            })
        })
        .collect();
    for task in tasks {
        for (time, cost) in task.await.expect("no panic") {
            println!("\nadmitted {time} {cost}");
        }
    }
}

#[tokio::test]
async fn four_processes_of_sixteen_tasks() {
    let server = Server::start();
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(std::env::current_exe().expect("this test"))
                .args(["--ignored", "--exact", "processes::worker", "--nocapture"])
                .env("PLIMSOLL_TEST_URL", server.url())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("a process")
        })
        .collect();
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("an end");
        assert!(output.status.success());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((time, cost)) =
                line.strip_prefix("admitted ").and_then(|line| line.split_once(' '))
            {
                let numbers = (time.parse().expect("a time"), cost.parse().expect("a cost"));
                admitted.push(numbers);
            }
        }
    }
    admitted.sort_unstable();
    let total: u64 = admitted.iter().map(|(_, cost)| cost).sum();
    // A checker that knows nothing of logs: two fingers on the sorted times.
    let (mut first, mut inside, mut most) = (0, 0, 0);
    for (time, cost) in &admitted {
        inside += cost;
        while admitted[first].0 + 500_000 <= *time {
            inside -= admitted[first].1;
            first += 1;
        }
        most = most.max(inside);
    }
    eprintln!("4 processes: {} requests, {total} units, at most {most} in 500 ms", admitted.len());
    assert!(most <= 200, "{most}");
    assert!(total >= SPENT, "the limit was made use of: {total}");
    // All or nothing: the other two policies were charged for exactly what was admitted.
    let limiter = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    );
    for (name, quota, limit) in
        [("day", "9000000/day fixed-window", 9_000_000), ("hour", "5000/h", 5_000)]
    {
        let policy = policy(name, quota);
        let Decision::Allowed(peek) =
            limiter.peek(policy.charge("all", 0)).await.expect("an answer")
        else {
            panic!("0 units")
        };
        assert_eq!(limit - peek.remaining().expect("a charge"), total, "{name}");
    }
    server.assert_all_keys_expire();
}

/// The examples, as a newcomer would run them with a server.
#[tokio::test]
async fn examples_share_a_budget() {
    let server = Server::start();
    let mut path = std::env::current_exe().expect("this test");
    path.pop();
    path.pop();
    let output = Command::new(path.join("examples/shared_budget"))
        .env("REDIS_URL", server.url())
        .output()
        .expect("built with the tests");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("together: 1000 of 1000"), "{text}");

    // Two processes of the quickstart: 5 units between them.
    let start = || {
        let mut child = Command::new(path.join("examples/quickstart"))
            .env("REDIS_URL", server.url())
            .env("ADDR", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("built with the tests");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.strip_prefix("listening on http://").expect("its address");
        (child, address.trim().to_owned())
    };
    let (mut first, mut second) = (start(), start());
    let ask = |address: &str| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let request = "GET / HTTP/1.1\r\nhost: x\r\nx-api-key: alice\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("an answer");
        reply.split(' ').nth(1).expect("a status").to_owned()
    };
    let order = [&first.1, &second.1, &first.1, &second.1, &first.1, &second.1, &first.1];
    let statuses: Vec<_> = order.iter().map(|address| ask(address)).collect();
    for child in [&mut first.0, &mut second.0] {
        child.kill().expect("running");
        child.wait().expect("an end");
    }
    assert_eq!(statuses, ["200", "200", "200", "200", "200", "429", "429"]);
    server.assert_all_keys_expire();
}

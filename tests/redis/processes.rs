//! Several processes on one key: the bound holds, by the server's own clock.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use tollgate::{Decision, Limiter, store::RedisStore};

use crate::{policy, servers::Server};

const QUOTA: &str = "200/500ms";

/// Not a test of its own: what each of the processes does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(url) = std::env::var("TOLLGATE_TEST_URL") else { return };
    let limiter = Limiter::new(RedisStore::connect(&url).await.expect("a store"));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let short = policy("short", QUOTA);
                let (day, hour) =
                    (policy("day", "9000000/day fixed-window"), policy("hour", "5000/h"));
                let mut admitted = Vec::new();
                let end = tokio::time::Instant::now() + Duration::from_secs(4);
                while tokio::time::Instant::now() < end {
                    let cost = 1 + task % 3;
                    let charges = [
                        day.charge("all", cost),
                        short.charge("all", cost),
                        hour.charge("all", cost),
                    ];
                    match limiter.check(charges).await.expect("an answer") {
                        Decision::Allowed(allowed) => {
                            let receipt = allowed.into_receipt();
                            admitted.push((receipt.time().as_micros(), cost));
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
                .args(["--exact", "processes::worker", "--nocapture"])
                .env("TOLLGATE_TEST_URL", server.url())
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
    assert!(total >= 1_200, "the limit was made use of: {total}");
    // All or nothing: the other two policies were charged for exactly what was admitted.
    let limiter = Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"));
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

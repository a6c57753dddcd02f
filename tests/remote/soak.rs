//! Faults at random for a while: memory stays flat, and no task or connection is left behind.
//! `PLIMSOLL_SOAK_SECONDS` says for how long; 10 minutes are 600. `PLIMSOLL_SOAK_OVER=socket` goes over
//! a unix socket instead of TCP.

use std::time::Duration;

use plimsoll::{Limiter, Policy, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::{
    calm::eventually,
    seed::Random,
    servers::{Server, directory},
    spoiling_proxy::{Proxy, Spoil},
};
use tokio::{runtime::Handle, time::Instant};

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind() {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").ok().and_then(|it| it.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(8));
    let _alone = crate::faults::ALONE.lock().await;
    let dir = directory();
    let [socket, own] = ["redis", "proxy"].map(|name| dir.join(name).with_extension("sock"));
    let server = Server::start_with(&["--unixsocket", socket.to_str().expect("utf-8")]);
    let (proxy, url) = match std::env::var("PLIMSOLL_SOAK_OVER").as_deref() {
        Ok("socket") => (Proxy::on_socket(&own, &socket), format!("unix://{}", own.display())),
        Ok(other) => panic!("PLIMSOLL_SOAK_OVER={other}: only socket is known"),
        Err(_) => {
            let proxy = Proxy::start(server.port).await;
            let url = proxy.url();
            (proxy, url)
        }
    };
    let config = RedisConfig::default().response_timeout(Duration::from_millis(100));
    let store = RedisStore::connect_with(RedisConfig::url(&url).with_settings(config))
        .await
        .expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().instances(3));
    let policy = Policy::new("p", "50/s").expect("a name");

    let mut random = Random::new("soak");
    let mut half_time = None;
    let (start, mut checks, mut errors, mut faults) = (Instant::now(), 0_u64, 0_u64, 0);
    while start.elapsed() < length {
        let spoils = [Spoil::Delay, Spoil::Swallow, Spoil::Cut, Spoil::Truncate, Spoil::Corrupt];
        proxy.spoil(spoils[random.below(5) as usize]);
        faults += 1;
        for well in [false, true] {
            if well {
                proxy.spoil(Spoil::Nothing);
            }
            let until = Instant::now() + Duration::from_millis(20 + random.below(580));
            while Instant::now() < until {
                let tasks: Vec<_> = (0..32)
                    .map(|_| {
                        let (limiter, policy) = (limiter.clone(), policy.clone());
                        let key = random.below(5_000);
                        tokio::spawn(
                            async move { limiter.check(policy.charge(key, 1)).await.is_err() },
                        )
                    })
                    .collect();
                for task in tasks {
                    errors += u64::from(task.await.expect("no panic"));
                    checks += 1;
                }
            }
        }
        if half_time.is_none() && start.elapsed() > length / 2 {
            half_time = Some(resident());
        }
    }
    proxy.spoil(Spoil::Nothing);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let grown = resident().saturating_sub(half_time.expect("half of the time has passed"));
    let clients =
        || -> u64 { server.info("clients", "connected_clients").parse().expect("a number") };
    // The connection of the question is one of them.
    eventually("connections have ended", async || clients() <= 2 + 3).await;
    let clients = clients();
    drop((limiter, proxy));
    let _ = std::fs::remove_dir_all(dir);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    eventually("all tasks have ended", async || tasks() == 0).await;
    eprintln!(
        "measured: {faults} faults in {length:?}, {checks} checks, {errors} errors, {grown} KiB more \
         than at half time, {clients} connections"
    );
    assert_eq!(errors, 0, "everything falls back");
    assert!(grown < 16 << 10, "{grown} KiB");
    assert!(clients <= 2 + 3, "{clients} connections");
}

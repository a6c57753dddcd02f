//! One reply too many on a connection: each that follows belongs to another request.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use plimsoll::{
    Decision, Limiter, RedisStore, Resilience,
    error::{Effect, ErrorKind},
    redis::RedisConfig,
};
use plimsoll_testing::{
    calm::eventually,
    proxy::Proxy,
    servers::{PATIENCE, Server},
};
use tokio::time::{Instant, sleep, timeout};

use crate::policy;

async fn limiter(url: &str) -> Limiter {
    // A connection without replies gets a `PING` after an eighth of this.
    let config = RedisConfig::default()
        .connections(1)
        .batching(false)
        .connect_timeout(PATIENCE)
        .response_timeout(Duration::from_secs(4));
    let store = RedisStore::connect_with(RedisConfig::url(url).with_settings(config))
        .await
        .expect("a store");
    Limiter::with_resilience(store, Resilience::none())
}

/// More than the first delay before connecting again.
const RECONNECT_DELAY: Duration = Duration::from_millis(30);

#[tokio::test]
async fn no_check_gets_the_reply_to_another() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let limiter = limiter(&url).await;
    let policy = policy("p", "100/h");
    let opened = proxy.opened.load(SeqCst);
    let _ = limiter.check(policy.charge(0_u64, 1)).await.expect("an answer");
    // All of it is in flight when the answers come.
    proxy.answer.store(20, SeqCst);
    proxy.strays.store(1, SeqCst);
    let left = async |key: u64, cost: u64| {
        let decision = limiter.check(policy.charge(key, cost)).await?;
        let Decision::Allowed(allowed) = decision else { panic!("it fits") };
        Ok::<_, plimsoll::Error>(allowed.remaining().expect("a charge"))
    };
    let (first, second, third) = tokio::join!(left(1, 10), left(2, 20), left(3, 30));
    assert_eq!(first.expect_err("not its own").kind(), ErrorKind::Protocol);
    for (answer, own) in [(second, 80), (third, 70)] {
        match answer {
            Ok(left) => assert_eq!(left, own),
            Err(error) => assert!(error.effect() != Effect::None, "{error:?}"),
        }
    }
    sleep(RECONNECT_DELAY).await;
    let (fourth, fifth) = tokio::join!(left(4, 40), left(5, 50));
    assert_eq!((fourth.expect("right"), fifth.expect("right")), (60, 50));
    for key in 6..16 {
        assert_eq!(left(key, key).await.expect("right"), 100 - key);
    }
    assert_eq!(proxy.opened.load(SeqCst), opened + 1, "one new connection");
}

/// The check that would get the additional reply has been given up, so only the `PING` after it can
/// notice.
#[tokio::test]
async fn a_ping_that_is_answered_with_something_else_ends_the_connection() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let limiter = limiter(&url).await;
    let policy = policy("p", "100/h");
    let _ = limiter.check(policy.charge("alice", 1)).await.expect("an answer");
    let opened = proxy.opened.load(SeqCst);
    proxy.answer.store(200, SeqCst);
    {
        let mut given_up = Box::pin(limiter.check(policy.charge("alice", 1)));
        // On a busy machine, the check takes more than a millisecond to the server.
        assert!(timeout(Duration::from_millis(50), &mut given_up).await.is_err());
        proxy.strays.store(1, SeqCst);
    }
    // The `PING` is sent after half a second. When this process has stood still, the short sleeps leave its
    // tasks their turns.
    for _ in 0..40 {
        sleep(Duration::from_millis(50)).await;
    }
    proxy.answer.store(0, SeqCst);
    let _ = limiter.check(policy.charge("alice", 1)).await.expect("an answer");
    assert_eq!(proxy.opened.load(SeqCst), opened + 1);
}

/// A server that replies nonsense to each check is not connected to for each check.
#[tokio::test]
async fn a_server_that_replies_nonsense_is_seldom_connected_to() {
    let server = Server::start();
    let (proxy, url) = Proxy::start(server.port).await;
    let limiter = limiter(&url).await;
    let policy = policy("p", "100/h");
    let opened = proxy.opened.load(SeqCst);
    proxy.nonsense.store(true, SeqCst);
    let start = Instant::now();
    for _ in 0..300 {
        limiter.check(policy.charge("alice", 1)).await.map(|_| ()).expect_err("nonsense");
        sleep(Duration::from_millis(1)).await;
    }
    let opened = proxy.opened.load(SeqCst) - opened;
    // The pause between two attempts grows to 250 ms, less a random part.
    let most = 25 + start.elapsed().as_millis() as usize / 125;
    assert!((1..=most).contains(&opened), "{opened}");
    proxy.nonsense.store(false, SeqCst);
    let decided = async || limiter.check(policy.charge("alice", 1)).await.is_ok();
    eventually("the server decides again", decided).await;
}

//! Regions over real servers, with partitions and delays on the way to the home.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::{Decision, Limiter, Policy, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_regions::{Regions, RegionsConfig};
use plimsoll_testing::{
    algorithms, policy,
    proxy::Proxy,
    seed,
    servers::{Server, until},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// The window of all quotas.
const WINDOW: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(6);
/// The units of each policy that are judged, at least.
const ENOUGH: usize = 5;

/// The time of one admitted unit: it was decided between these two instants of the clock that all tasks
/// of this process share.
#[derive(Clone, Copy)]
struct Admitted {
    region: usize,
    start: Instant,
    end: Instant,
}

/// Returns the most units of any window that were certainly used within it: between the beginning of
/// their checks and the end.
fn most(units: &[Admitted]) -> usize {
    let mut units = units.to_vec();
    units.sort_by_key(|unit| unit.end);
    let window = |last: usize| {
        let end = units[last].end;
        let recent = units[..=last].iter().rev().take_while(move |unit| unit.end + WINDOW > end);
        recent.filter(|unit| unit.start + WINDOW > end).count()
    };
    (0..units.len()).map(window).max().unwrap_or(0)
}

/// Three servers: of two regions, and of the home.
struct Servers {
    regions: [Server; 2],
    home: Server,
}

impl Servers {
    fn start() -> Self {
        Self { regions: [Server::start(), Server::start()], home: Server::start() }
    }

    /// Connects an instance of a region, which reaches the home through `way`.
    async fn instance(&self, region: usize, way: &str) -> Limiter {
        // A server that is late under the load of other tests must not bring in the fallback of the region,
        // which may admit the share once more.
        self.instance_with(region, way, Resilience::default().without_fallback()).await
    }

    async fn instance_with(&self, region: usize, way: &str, resilience: Resilience) -> Limiter {
        let local = RedisStore::connect(&self.regions[region].url()).await.expect("a server");
        let pool = RedisConfig::url(way).prefix("pool").lazy(true);
        let home = RedisStore::connect_with(pool).await.expect("lazy");
        let config = RegionsConfig::new(2).share_percent(60).resilience(resilience.clone());
        let regions = Regions::new(local, home, config).expect("valid");
        Limiter::with_resilience(regions, resilience)
    }
}

/// Spends units of random policies with `check` until the end of the run.
async fn spend(
    region: usize,
    policies: Arc<[Policy]>,
    units: Arc<Mutex<Vec<Vec<Admitted>>>>,
    mut random: seed::Random,
    check: impl AsyncFn(&Policy) -> bool,
) {
    let begin = Instant::now();
    let has_enough = || units.lock().expect("whole").iter().all(|units| units.len() > ENOUGH);
    // On a slow machine, until there is something to judge.
    while begin.elapsed() < RUN || !has_enough() && begin.elapsed() < 10 * RUN {
        let number = random.below(policies.len() as u64) as usize;
        let start = Instant::now();
        if check(&policies[number]).await {
            let unit = Admitted { region, start, end: Instant::now() };
            units.lock().expect("whole")[number].push(unit);
        } else {
            sleep(Duration::from_millis(random.below(4))).await;
        }
        // The demand of the first region is the higher one.
        sleep(Duration::from_millis(random.below(3) * region as u64)).await;
    }
}

/// Cuts and delays the ways to the home at random.
async fn disturb(ways: [Arc<Proxy>; 2], mut random: seed::Random) {
    use std::sync::atomic::Ordering::SeqCst;
    loop {
        let way = &ways[random.below(2) as usize];
        match random.below(5) {
            // A partition: new connections get no answers either.
            0 => {
                way.mute.store(true, SeqCst);
                way.cut();
            }
            1 => way.cut(),
            2 => way.answer.store(random.below(150), SeqCst),
            _ => {
                way.answer.store(random.below(10), SeqCst);
                if way.mute.swap(false, SeqCst) {
                    way.cut();
                }
            }
        }
        sleep(Duration::from_millis(random.below(500))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_regions_over_real_servers_never_admit_more_than_the_limit() {
    let policies: Arc<[Policy]> = [
        ("direct", "100/s"),
        ("leased", "100/s leased(100ms)"),
        ("buckets", "100/s sliding-buckets(5) leased(50ms)"),
        ("bucket", "100/s token-bucket(40) leased(50ms)"),
        ("tiny", "3/s"),
    ]
    .map(|(name, quota)| policy(name, quota))
    .into();
    let servers = Servers::start();
    let (east, east_url) = Proxy::start(servers.home.port).await;
    let (west, west_url) = Proxy::start(servers.home.port).await;
    let units = Arc::new(Mutex::new(vec![Vec::new(); policies.len()]));
    let seed = seed::seed("real regions");

    let mut tasks = JoinSet::new();
    let mut limiters = Vec::new();
    for (region, way) in [(0, &east_url), (0, &east_url), (1, &west_url), (1, &west_url)] {
        let limiter = servers.instance(region, way).await;
        limiters.push(limiter.clone());
        for task in 0..4 {
            let (limiter, policies) = (limiter.clone(), Arc::clone(&policies));
            let random = seed::Random(seed ^ (limiters.len() as u64 * 100 + task));
            let check = async move |policy: &Policy| {
                // A quota without a share fails while the home is gone.
                limiter.check(policy.charge("alice", 1)).await.is_ok_and(|it| it.is_allowed())
            };
            tasks.spawn(spend(region, policies, Arc::clone(&units), random, check));
        }
    }
    let disturbance = tokio::spawn(disturb([east, west], seed::Random(seed)));
    tasks.join_all().await;
    disturbance.abort();
    for limiter in limiters {
        // The home may be gone.
        let _ = limiter.close().await;
    }

    let units = units.lock().expect("whole");
    let mut used_pool = 0;
    for (policy, units) in policies.iter().zip(units.iter()) {
        let quota = policy.quota();
        let bound = algorithms::most(&quota);
        let of = |region| -> Vec<_> {
            units.iter().copied().filter(|unit| unit.region == region).collect()
        };
        let (both, east, west) = (most(units), most(&of(0)), most(&of(1)));
        eprintln!(
            "{policy:?}: {} units, in the fullest window {both} of {bound} ({east} and {west})",
            units.len()
        );
        assert!(both as u64 <= bound, "{policy:?}: {both} units in a window, at most {bound}");
        used_pool += usize::from(east as u64 > quota.limit() * 30 / 100);
    }
    assert!(units[0].len() > 100 && units[1].len() > 100, "it makes progress");
    assert!(used_pool >= 2, "the first region spends more than its share");
}

/// Returns the units of a key that each limiter admits until it denies.
async fn admitted(limiters: &[Limiter], policy: &Policy, key: &str) -> Vec<u64> {
    let mut admitted = Vec::new();
    for limiter in limiters {
        let mut units = 0;
        while limiter.check(policy.charge(key, 1)).await.expect("it falls back").is_allowed() {
            units += 1;
        }
        admitted.push(units);
    }
    admitted
}

/// Three instances of one region, and two of the other one. The server of the first region is killed. Then each of its
/// instances admits a third of the share, and the other region goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_region_counts_its_own_instances() {
    let mut servers = Servers::start();
    let home = servers.home.url();
    let mut regions = [Vec::new(), Vec::new()];
    for region in [0, 0, 0, 1, 1] {
        let limiter = servers.instance_with(region, &home, Resilience::default()).await;
        regions[region].push(limiter);
    }
    let [east, west] = regions;
    let known = |limiters: &[Limiter]| -> Vec<u32> {
        limiters.iter().map(|limiter| limiter.status().instances.unwrap_or(0)).collect()
    };
    until("each instance knows the others of its region", || {
        known(&east) == [3; 3] && known(&west) == [2; 2]
    });
    assert_eq!(servers.home.keys().len(), 0, "none counts at home");

    // A limit of 100: a share of 30 for each region, and a pool of 40.
    let api = policy("api", "100/h");
    servers.regions[0].kill();
    // On a busy machine a reply was late, and a unit is counted twice.
    let parts =
        |counts: &[u32]| counts.iter().map(|count| 30 / u64::from(*count)).collect::<Vec<_>>();
    assert_eq!(admitted(&east, &api, "alice").await, parts(&known(&east)));
    assert_eq!(admitted(&west, &api, "alice").await, [70, 0]);
    // However long an outage is, the number does not become smaller.
    sleep(Duration::from_secs(8)).await;
    let (in_east, in_west) = (known(&east), known(&west));
    assert!(in_east.iter().all(|count| (3..=5).contains(count)), "{in_east:?}");
    assert!(in_west.iter().all(|count| (2..=4).contains(count)), "{in_west:?}");
    assert_eq!(admitted(&east, &api, "bob").await, parts(&in_east));
}

/// The recipe that is found in many places: a limiter of 70% of the limit in each region, and the whole
/// limit in one that all regions share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_judge_finds_the_excess_of_local_limits_before_a_global_one() {
    let servers = Servers::start();
    let policies: Arc<[Policy]> = [policy("whole", "100/s")].into();
    let units = Arc::new(Mutex::new(vec![Vec::new()]));
    let seed = seed::seed("real recipe");
    let mut tasks = JoinSet::new();
    for region in 0..2 {
        let local = Limiter::new(
            RedisStore::connect(&servers.regions[region].url()).await.expect("a server"),
        );
        let home = Limiter::new(RedisStore::connect(&servers.home.url()).await.expect("a server"));
        for task in 0..4 {
            let (local, home) = (local.clone(), home.clone());
            let part = policy("part", "70/s");
            let check = async move |whole: &Policy| {
                for (limiter, policy) in [(&local, &part), (&home, whole)] {
                    let decision = limiter.check(policy.charge("alice", 1)).await;
                    if let Ok(Decision::Allowed(_)) = decision {
                        return true;
                    }
                }
                false
            };
            let random = seed::Random(seed ^ (region as u64 * 100 + task));
            let (policies, units) = (Arc::clone(&policies), Arc::clone(&units));
            tasks.spawn(spend(region, policies, units, random, check));
        }
    }
    tasks.join_all().await;
    let most = most(&units.lock().expect("whole")[0]);
    assert!(most > 110, "{most} of 100");
}

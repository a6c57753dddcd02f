//! Programs that hold units in flight and do not poll their runtimes, in processes of which some stand still.
//!
//! Each program blocks on the check, does blocking work that may take longer than the expiry, and writes down
//! when the work has begun and ended. The count of the work in flight uses these times alone.

use std::{
    env,
    fs::{self, File},
    io::Write,
    sync::Arc,
    thread,
    time::Duration,
};

use plimsoll::{Limiter, RedisStore, Resilience, limiter::Reserved, redis::RedisConfig};
use plimsoll_testing::{
    calm::on_a_calm_machine,
    policy,
    role::{Role, end_of_input},
    seed::Random,
    servers::{PATIENCE, Server},
};
use tokio::{
    runtime::Builder,
    time::{Instant, sleep},
};

use crate::{
    holder::{FILE, URL, now},
    signal,
};

const UNITS: usize = 3;
const QUOTA: &str = "3 concurrent expires(1s)";
const EXPIRY: Duration = Duration::from_secs(1);
/// The longest time for which a process may stand still.
const STANDS_STILL: Duration = EXPIRY.saturating_mul(5).checked_div(8).expect("not by 0");
const PROCESSES: usize = 3;
/// The programs of a process, each with a thread, a runtime and a limiter of its own.
const PROGRAMS: usize = 2;
/// The duration of the work, in milliseconds.
const WORK: [u64; 6] = [1, 20, 300, 700, 1_200, 2_500];
const LENGTH: Duration = Duration::from_secs(10);

/// Works until the standard input ends.
#[test]
#[ignore = "a role: another test starts it"]
fn role() {
    let url = env::var(URL).expect("a role");
    let file = env::var(FILE).expect("a role");
    let records = Arc::new(File::create(file).expect("a file"));
    println!("\nstarted");
    let is_over = Arc::new(());
    for program in 0..PROGRAMS {
        let random = Random(u64::from(std::process::id()) << 8 | program as u64);
        let (url, records) = (url.clone(), Arc::clone(&records));
        let runs = Arc::downgrade(&is_over);
        thread::spawn(move || work(&url, random, &records, || runs.strong_count() > 0));
    }
    Builder::new_current_thread().build().expect("a runtime").block_on(end_of_input());
    let ended = Arc::downgrade(&is_over);
    drop(is_over);
    while ended.weak_count() > 1 {
        thread::sleep(Duration::from_millis(5));
    }
}

fn work(url: &str, mut random: Random, records: &File, runs: impl Fn() -> bool) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = RedisConfig::url(url).connect_timeout(PATIENCE).response_timeout(PATIENCE);
    let store = runtime.block_on(RedisStore::connect_with(config)).expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().without_fallback());
    let jobs = policy("jobs", QUOTA);
    while runs() {
        match runtime.block_on(limiter.reserve(jobs.charge("all", 1))) {
            Ok(Reserved::Held(held)) => {
                let begin = now();
                thread::sleep(Duration::from_millis(random.one(&WORK)));
                let record = [begin, now()].map(u64::to_le_bytes).concat();
                { records }.write_all(&record).expect("written");
                drop(held);
            }
            Ok(Reserved::Denied(_)) | Err(_) => thread::sleep(Duration::from_millis(7)),
        }
    }
}

/// Returns the most pieces of work at the same time.
fn most_at_once(pieces: &[(u64, u64)]) -> usize {
    let at_once = |time| pieces.iter().filter(|(begin, end)| *begin <= time && time < *end).count();
    pieces.iter().map(|(begin, _)| at_once(*begin)).max().unwrap_or_default()
}

#[test]
fn work_that_ends_when_other_work_begins_is_not_beside_it() {
    assert_eq!(most_at_once(&[(0, 5), (5, 9), (1, 3), (2, 5), (4, 6)]), 3);
}

/// Runs the processes, of which one at a time stands still for `pause`. Returns the pieces of work.
async fn run(server: &Server, pause: Duration) -> Vec<(u64, u64)> {
    let file = |process: usize| server.dir.join(format!("units-{process}"));
    let start = |process: usize| {
        let path = file(process).into_os_string().into_string().expect("UTF-8");
        Role::start("units::role", &[(URL, &server.url()), (FILE, &path)])
    };
    let mut roles: Vec<_> = (0..PROCESSES).map(start).collect();
    roles.iter_mut().for_each(|role| drop(role.says("started")));
    let (begin, mut random) = (Instant::now(), Random::new("units of processes"));
    while begin.elapsed() < LENGTH {
        sleep(EXPIRY + Duration::from_millis(random.below(500))).await;
        let frozen = random.one(&roles.iter().map(Role::pid).collect::<Vec<_>>());
        signal("-STOP", frozen);
        sleep(pause).await;
        signal("-CONT", frozen);
    }
    roles.into_iter().for_each(|role| drop(role.end()));
    let bytes: Vec<u8> =
        (0..PROCESSES).flat_map(|it| fs::read(file(it)).expect("written")).collect();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    bytes.chunks_exact(16).map(|record| (number(&record[..8]), number(&record[8..]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_do_not_poll_and_stand_still_have_no_more_in_flight_than_units() {
    let server = Server::start();
    // `sleep` and the signal take a part of the time.
    let pause = STANDS_STILL - Duration::from_millis(10);
    on_a_calm_machine(async || {
        let pieces = run(&server, pause).await;
        let most = most_at_once(&pieces);
        let long = pieces.iter().filter(|(begin, end)| end - begin > 1_100_000).count();
        eprintln!(
            "{} pieces of work, {long} longer than the expiry, at most {most} at once",
            pieces.len()
        );
        assert!(pieces.len() > 20 && long > 3, "{} pieces, {long} long", pieces.len());
        assert!(most >= UNITS, "the limit was reached: {most}");
        if most > UNITS { Err(format!("{most} of {UNITS} in flight")) } else { Ok(()) }
    })
    .await;
    server.assert_all_keys_expire();
}

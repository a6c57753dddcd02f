//! Six processes lease from one Redis. Two are killed, one is frozen, and one has a bad connection.
//! The processes share a clock, by which no window holds more units than its bound.

mod holder;
mod judge;
mod units;
mod unpolled;

use std::{env, fs, path::Path, process::Command, sync::atomic::Ordering::SeqCst, time::Duration};

use plimsoll_testing::{algorithms::most, proxy::Proxy, role::Role, seed::Random, servers::Server};
use tokio::time::{Instant, sleep};

use self::{
    holder::{FILE, URL, quotas},
    judge::Judge,
};

/// The number of processes.
const PROCESSES: usize = 6;

/// The process with a bad connection, and the process that is frozen. The last two are killed.
const DISTANT: usize = 0;
const FROZEN: usize = 1;

/// A change of the processes in the course of a run.
type Event = Box<dyn FnOnce(&mut Vec<Role>)>;

/// `PLIMSOLL_LEASES_SECONDS` sets the length of the run. More than 5 million units need 60 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_holds_more_than_its_bound() {
    let seconds = env::var("PLIMSOLL_LEASES_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(8));
    let server = Server::start();
    let (proxy, distant) = Proxy::start(server.port).await;
    let file = |process: usize| server.dir.join(format!("uses-{process}"));
    let start = |process: usize| {
        let url = if process == DISTANT { distant.clone() } else { server.url() };
        let path = file(process).into_os_string().into_string().expect("UTF-8");
        Role::start("holder::role", &[(URL, &url), (FILE, &path)])
    };
    let mut roles: Vec<_> = (0..PROCESSES).map(start).collect();
    for role in &mut roles {
        role.says("started");
    }
    let mut random = Random::new("leases of processes");
    let begin = Instant::now();
    let passed = |tenths: u32| move || begin.elapsed() >= length * tenths / 10;
    // Its leases end while it is frozen.
    let frozen = roles[FROZEN].pid();
    let mut plan: Vec<(_, Event)> = vec![
        (passed(9), Box::new(|_| {})),
        (passed(7), Box::new(|roles| drop(roles.pop()))),
        (passed(6), Box::new(move |_| signal("-CONT", frozen))),
        (passed(4), Box::new(|roles| drop(roles.pop()))),
        (passed(3), Box::new(move |_| signal("-STOP", frozen))),
    ];
    while let Some((is_due, _)) = plan.last() {
        if is_due() {
            plan.pop().expect("the last").1(&mut roles);
        }
        disturb(&proxy, &mut random);
        sleep(Duration::from_millis(50)).await;
    }
    proxy.answer.store(0, SeqCst);
    let from_stock: u64 = roles.into_iter().map(leased).sum();

    let mut judges: Vec<_> = quotas().map(|_| Judge::default()).collect();
    let uses: Vec<_> = (0..PROCESSES).map(|process| read(&file(process), &mut judges)).collect();
    eprintln!("{from_stock} checks from stock; uses of each process: {uses:?}");
    assert!(uses.iter().all(|count| *count > 100), "each process was admitted: {uses:?}");
    assert!(from_stock > uses.iter().sum::<u64>() / 4, "many checks are decided from stock");
    let mut total = 0;
    for (text, judge) in quotas().zip(judges) {
        let bound = most(&text.parse().expect("a quota"));
        let (units, fullest) = judge.fullest_window(1_000_000);
        eprintln!("{text}: {units} units, at most {fullest} of {bound} in a window");
        assert!(fullest <= bound, "{text}: {fullest} in a window of {bound}");
        total += units;
    }
    eprintln!("{total} units in {length:?}");
    assert!(total > 5_000 * length.as_secs(), "the limits were made use of");
    assert!(length < Duration::from_secs(60) || total > 5_000_000, "a long run is a large one");
    server.assert_all_keys_expire();
}

/// Makes the connection of one process slow, or loses what the server has sent on it.
fn disturb(proxy: &Proxy, random: &mut Random) {
    match random.below(20) {
        0 => proxy.silent.store(proxy.opened.load(SeqCst), SeqCst),
        1 => proxy.cut(),
        2..8 => proxy.answer.store(random.below(40), SeqCst),
        _ => proxy.answer.store(1, SeqCst),
    }
}

/// Ends a process, and returns the number of its checks that were decided from stock.
fn leased(role: Role) -> u64 {
    let text = role.end();
    let count = text.lines().find_map(|line| line.strip_prefix("from stock"));
    count.and_then(|count| count.trim().parse().ok()).expect("a number")
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.expect("kill is installed").success());
}

/// Passes the uses in a file to the judges, and returns their number.
fn read(file: &Path, judges: &mut [Judge]) -> u64 {
    let bytes = fs::read(file).expect("the process has written it");
    let mut count = 0;
    // The last record of a process that was killed may be incomplete.
    for record in bytes.chunks_exact(holder::RECORD) {
        let number =
            |at: usize| u64::from_le_bytes(record[8 * at..8 * at + 8].try_into().expect("8 bytes"));
        judges[number(0) as usize].add(number(1), number(2), number(3));
        count += 1;
    }
    count
}

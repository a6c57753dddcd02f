//! Programs whose checks do not yield: something else occupies the thread between two checks, so the
//! tasks of the leases are polled only while a check waits.
//!
//! Each program has a runtime, a limiter and connections of its own. Two of them share a key. Redis
//! is healthy all the time, so the fallback must not decide a check, and no window may hold more units
//! than its bound. `tests/remote/leases.rs` has the same in virtual time.

use std::{
    env,
    fmt::{self, Display},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use plimsoll::{Algorithm, Decision, Limiter, Policy, Quota, RedisStore, store::Source};
use plimsoll_testing::{
    algorithms::{most, with_parameters},
    calm::on_a_calm_machine,
    seed::Random,
    servers::Server,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use crate::{holder::now, judge::Judge};

/// The way in which a program runs its checks.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// A loop in the main task of a runtime of one thread.
    Loop,
    /// A loop in a task of a runtime with two threads.
    Spawned,
    /// A synchronous program that blocks on each check, on a runtime of one thread.
    BlockOn,
    /// The same, on a runtime with two threads.
    BlockOnSeveral,
}

const PROGRAMS: [Program; 4] =
    [Program::Loop, Program::Spawned, Program::BlockOn, Program::BlockOnSeveral];

/// The time between two checks, in milliseconds.
const WORK: [u64; 7] = [5, 15, 30, 60, 70, 150, 500];

/// The leases in milliseconds, and the windows. The last one is part of the long run only.
const LEASES: [(u64, u64); 4] = [(20, 1_000), (100, 1_000), (1_000, 10_000), (5_000, 50_000)];

/// Locked by the program that connects.
static CONNECTS: Mutex<()> = Mutex::new(());

/// Two programs that share a key.
#[derive(Debug, Clone)]
struct Cell {
    program: Program,
    work: Duration,
    policy: Policy,
}

/// The uses of one program, and the number of its checks that the fallback decided, and the stock.
#[derive(Debug, Default)]
struct Uses {
    admitted: Vec<(u64, u64)>,
    checks: u64,
    from_fallback: u64,
    from_stock: u64,
}

impl Cell {
    /// Creates a cell whose two programs want 1.5 times as much as the limit.
    fn new(program: Program, work: u64, (lease, window): (u64, u64), algorithm: Algorithm) -> Self {
        let limit = (2 * window / work * 2 / 3).max(2);
        let algorithm = with_parameters(algorithm, 10, limit.div_ceil(2) + 2);
        let quota = Quota::new(limit, Duration::from_millis(window), algorithm)
            .and_then(|quota| quota.leased(Duration::from_millis(lease)))
            .expect("a valid quota");
        let work = Duration::from_millis(work);
        Self { program, work, policy: Policy::new("unpolled", quota).expect("a valid name") }
    }

    /// The most units in any window.
    fn bound(&self) -> u64 {
        most(&self.policy.quota())
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.policy.quota(), self.program, self.work)
    }
}

/// Runs a program of a cell until `end`.
fn run(cell: &Cell, key: &str, url: &str, end: Instant) -> Uses {
    let several = matches!(cell.program, Program::Spawned | Program::BlockOnSeveral);
    let runtime = match several {
        true => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        false => Builder::new_current_thread().enable_all().build(),
    };
    let runtime = runtime.expect("a runtime");
    let store = {
        // One after the other, so that no connection waits for processor time.
        let _turn = CONNECTS.lock().expect("no panic");
        runtime.block_on(connect(url))
    };
    let limiter = Limiter::new(store);
    match cell.program {
        Program::Loop => runtime.block_on(check_until(cell.clone(), key.to_owned(), limiter, end)),
        Program::Spawned => {
            let checks = check_until(cell.clone(), key.to_owned(), limiter, end);
            let task = runtime.spawn(checks);
            runtime.block_on(task).expect("no panic")
        }
        Program::BlockOn | Program::BlockOnSeveral => {
            block_on_each(&runtime, cell, key, &limiter, end)
        }
    }
}

/// Connects, however late the machine is.
async fn connect(url: &str) -> RedisStore {
    for _ in 0..20 {
        match RedisStore::connect(url).await {
            Ok(store) => return store,
            Err(error) => eprintln!("once more: {error}"),
        }
    }
    panic!("no store");
}

async fn check_until(cell: Cell, key: String, limiter: Limiter, end: Instant) -> Uses {
    let mut uses = Uses::default();
    while Instant::now() < end {
        uses.check(&cell, &key, &limiter).await;
        thread::sleep(cell.work);
    }
    uses
}

fn block_on_each(
    runtime: &Runtime,
    cell: &Cell,
    key: &str,
    limiter: &Limiter,
    end: Instant,
) -> Uses {
    let mut uses = Uses::default();
    while Instant::now() < end {
        runtime.block_on(uses.check(cell, key, limiter));
        thread::sleep(cell.work);
    }
    uses
}

impl Uses {
    async fn check(&mut self, cell: &Cell, key: &str, limiter: &Limiter) {
        let before = now();
        let decision = limiter.check(cell.policy.charge(key, 1)).await.expect("a decision");
        let after = now();
        self.checks += 1;
        self.from_fallback += u64::from(decision.source() == Source::Fallback);
        self.from_stock += u64::from(decision.source() == Source::Leased);
        if matches!(decision, Decision::Allowed(_)) {
            self.admitted.push((before, after));
        }
    }
}

/// Runs cells side by side. Returns the failures, and counts the checks.
fn run_all(cells: &[Cell], url: &str, counts: &mut Uses) -> Vec<String> {
    let longest = cells.iter().map(|cell| cell.policy.quota().window()).max().unwrap_or_default();
    let end = Instant::now() + longest * 13 / 10 + Duration::from_secs(1);
    let url: Arc<str> = url.into();
    let start = |(number, cell): (usize, &Cell)| {
        [(); 2].map(|()| {
            let (cell, url) = (cell.clone(), Arc::clone(&url));
            thread::spawn(move || run(&cell, &number.to_string(), &url, end))
        })
    };
    let programs: Vec<_> = cells.iter().enumerate().map(start).collect();
    let mut failures = Vec::new();
    for (cell, programs) in cells.iter().zip(programs) {
        let mut judge = Judge::default();
        let mut from_fallback = 0;
        for program in programs {
            let uses = program.join().expect("no panic");
            uses.admitted.iter().for_each(|(before, after)| judge.add(*before, *after, 1));
            from_fallback += uses.from_fallback;
            counts.checks += uses.checks;
            counts.from_stock += uses.from_stock;
        }
        let window = cell.policy.quota().window().as_micros() as u64;
        let (_, fullest) = judge.fullest_window(window);
        if from_fallback > 0 || fullest > cell.bound() {
            let bound = cell.bound();
            failures.push(format!("{cell}: {from_fallback} by the fallback, {fullest} of {bound}"));
        }
    }
    failures
}

/// Returns the runs of cells. The short form has a random algorithm in each cell, and no lease of 5 s.
fn plan(is_long: bool) -> Vec<Vec<Cell>> {
    let leases = if is_long { &LEASES[..] } else { &LEASES[..3] };
    let mut random = Random::new("unpolled leases");
    let mut cells = |algorithm: Option<Algorithm>| {
        let mut cells = Vec::new();
        for lease in leases {
            for work in WORK {
                for program in PROGRAMS {
                    let algorithm = algorithm.unwrap_or_else(|| random.one(Algorithm::EACH));
                    cells.push(Cell::new(program, work, *lease, algorithm));
                }
            }
        }
        cells
    };
    match is_long {
        true => Algorithm::EACH.iter().map(|it| cells(Some(*it))).collect(),
        false => vec![cells(None)],
    }
}

/// `PLIMSOLL_LEASES_MATRIX=1` runs each algorithm in each cell, also with a lease of 5 s: 6 minutes. Run it
/// with `--release`: without optimizations, 112 programs at a time leave two cores no time for Redis.
#[tokio::test]
async fn a_program_that_does_not_poll_its_leases_never_falls_back() {
    let server = Server::start();
    let runs = plan(env::var_os("PLIMSOLL_LEASES_MATRIX").is_some());
    for cells in &runs {
        // A machine without free processor time delays Redis as well.
        on_a_calm_machine(async || {
            let mut counts = Uses::default();
            let failures = run_all(cells, &server.url(), &mut counts);
            let Uses { checks, from_stock, .. } = counts;
            eprintln!("{} cells, {checks} checks, {from_stock} from stock", cells.len());
            match failures.is_empty() {
                false => Err(format!("{failures:#?}")),
                true if from_stock <= checks / 10 => {
                    Err(format!("{from_stock} of {checks} checks from stock"))
                }
                true => Ok(()),
            }
        })
        .await;
    }
}

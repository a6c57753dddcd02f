//! Seeds of the randomised tests, so that each failure can be reproduced.
//!
//! A randomised test starts from a seed, random by default, and prints it as
//! `seed <test>: 0x<seed>`, also when it passes. `PLIMSOLL_SEED` (decimal, or hexadecimal after
//! `0x`) sets the seed: the same seed gives the same cases in the same order.

use std::{
    any::Any,
    collections::BTreeSet,
    env,
    fmt::Debug,
    fs::{OpenOptions, read_to_string},
    hash::{BuildHasher, RandomState},
    io::Write,
    panic::Location,
    path::{Path, PathBuf},
};

use proptest::{
    strategy::Strategy,
    test_runner::{
        Config, FailurePersistence, FileFailurePersistence, PersistedSeed, RngSeed, TestCaseResult,
        TestRunner,
    },
};

/// Returns the seed of `test` and prints it, past the capture of the test harness.
pub fn seed(test: &str) -> u64 {
    let seed = match env::var("PLIMSOLL_SEED") {
        Ok(text) => parse(&text).unwrap_or_else(|| panic!("PLIMSOLL_SEED={text}: not a number")),
        Err(_) => RandomState::new().hash_one(test),
    };
    let line = format!("seed {test}: {seed:#x}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
    seed
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The variable that lets a failing test write its case into the file that keeps them.
const KEEP: &str = "PLIMSOLL_KEEP_FAILURES";

/// Returns the file beside the caller's that keeps the cases which failed once.
#[track_caller]
fn regressions() -> PathBuf {
    // Relative to the workspace, which is this package or a folder above it.
    let caller = Location::caller().file();
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let file = folders.find_map(|folder| Some(folder.join(caller)).filter(|it| it.is_file()));
    file.unwrap_or_else(|| caller.into()).with_extension("regressions.txt")
}

/// Runs `property` on random values of `strategy`, starting from [`seed`].
///
/// The cases in `<file>.regressions.txt` beside the file of the caller run first. The smallest failing case
/// that was found is added to that file if `PLIMSOLL_KEEP_FAILURES` is set.
///
/// # Panics
///
/// Panics with the smallest failing case and the seed if `property` fails.
#[track_caller]
pub fn property<S: Strategy>(
    test: &str,
    config: Config,
    strategy: S,
    property: impl Fn(S::Value) -> TestCaseResult,
) {
    let file: &'static str = regressions().into_os_string().into_string().expect("UTF-8").leak();
    let seed = seed(test);
    let config = Config {
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: Some(Box::new(KeptFailures(FileFailurePersistence::Direct(file)))),
        ..config
    };
    if let Err(failure) = TestRunner::new(config).run(&strategy, property) {
        panic!("{failure}\n{test} failed; to run it again: PLIMSOLL_SEED={seed:#x}");
    }
}

/// The cases that are kept in a file, which is written only on request.
#[derive(Debug)]
struct KeptFailures(FileFailurePersistence);

impl FailurePersistence for KeptFailures {
    fn load_persisted_failures2(&self, source_file: Option<&'static str>) -> Vec<PersistedSeed> {
        self.0.load_persisted_failures2(source_file)
    }

    fn save_persisted_failure2(
        &mut self,
        source_file: Option<&'static str>,
        seed: PersistedSeed,
        shrunken_value: &dyn Debug,
    ) {
        if env::var_os(KEEP).is_some() {
            self.0.save_persisted_failure2(source_file, seed, shrunken_value);
        } else {
            eprintln!("{KEEP}=1 adds the case to a file: {seed} {shrunken_value:?}");
        }
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(Self(self.0))
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A part of a randomised test that has a seed of its own.
pub struct History {
    pub seed: u64,
    line: String,
    regressions: PathBuf,
}

/// Returns the histories of `test` that failed once, then `count` histories with the seeds
/// [`seed`], `seed + 1` and so on.
///
/// A history that is dropped by a panic is added to `<file>.regressions.txt` beside the file of the
/// caller if `PLIMSOLL_KEEP_FAILURES` is set.
#[track_caller]
pub fn histories(test: &str, count: u64) -> impl Iterator<Item = History> {
    let (regressions, first) = (regressions(), seed(test));
    let kept = read_to_string(&regressions).unwrap_or_default();
    let kept = kept.lines().filter_map(|line| parse(line.strip_prefix(test)?.trim()));
    // Each once: a history has keys of its own, which a second run would find as the first left them.
    let mut known = BTreeSet::new();
    let seeds = kept.chain((0..count).map(|n| first.wrapping_add(n)));
    let seeds: Vec<u64> = seeds.filter(|seed| known.insert(*seed)).collect();
    let test = test.to_owned();
    seeds.into_iter().map(move |seed| History {
        seed,
        line: format!("{test} {seed:#x}\n"),
        regressions: regressions.clone(),
    })
}

impl Drop for History {
    fn drop(&mut self) {
        let known = || read_to_string(&self.regressions).unwrap_or_default().contains(&self.line);
        if !std::thread::panicking() || known() {
            return;
        }
        if env::var_os(KEEP).is_none() {
            eprintln!("{KEEP}=1 adds to {:?}: {}", self.regressions, self.line);
        } else {
            let file = OpenOptions::new().create(true).append(true).open(&self.regressions);
            let written = file.and_then(|mut file| file.write_all(self.line.as_bytes()));
            eprintln!("added to {:?} ({written:?}): {}", self.regressions, self.line);
        }
    }
}

/// A generator of random numbers (SplitMix64), for tests that need no strategies.
pub struct Random(pub u64);

impl Random {
    /// Creates a generator that starts from [`seed`].
    pub fn new(test: &str) -> Self {
        Self(seed(test))
    }

    /// Returns a number of any size.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Returns one of `values`.
    pub fn one<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

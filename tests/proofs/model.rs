//! The program that is extracted from the proofs.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use plimsoll::{Algorithm, Quota};
use plimsoll_testing::algorithms::facts;

use crate::history::Ask;

/// The answer of the model to one charge of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) units: u64,
    pub(crate) remaining: u64,
    pub(crate) next_after: u64,
    pub(crate) reset_after: u64,
    pub(crate) retry_after: Option<u64>,
}

/// A decision: whether the check was admitted, and a line for each charge.
pub(crate) type Decided = (bool, Vec<Line>);

/// A running program.
pub(crate) struct Model {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Model {
    pub(crate) fn start() -> Self {
        static CHECKED: OnceLock<()> = OnceLock::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        CHECKED.get_or_init(|| {
            let status = Command::new(root.join("scripts/proofs")).status();
            assert!(status.expect("scripts/proofs runs").success(), "scripts/proofs failed");
        });
        let mut child = Command::new(root.join("target/proofs/model"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program that scripts/proofs has built");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    /// Begins a history with a key under each quota.
    pub(crate) fn begin(&mut self, quotas: &[Quota]) {
        let keys: Vec<_> = quotas.iter().map(words).collect();
        writeln!(self.input, "keys {}", keys.join(" ")).expect("the program reads");
    }

    /// Decides a check with a charge of each key.
    pub(crate) fn check(&mut self, now: u64, asks: &[Ask]) -> Decided {
        let asks: Vec<_> = asks.iter().map(|ask| format!("{} {}", ask.cost, ask.most)).collect();
        writeln!(self.input, "check {now} {}", asks.join(" ")).expect("the program reads");
        self.answer()
    }

    /// Begins a history of one key, whose quota changes but not its algorithm.
    pub(crate) fn begin_changing(&mut self, quota: &Quota) {
        writeln!(self.input, "changing {}", name(quota).0).expect("the program reads");
    }

    /// Decides a check of one charge under a quota.
    pub(crate) fn charge(&mut self, now: u64, quota: &Quota, cost: u64) -> (bool, Line) {
        let quota = changing_words(quota);
        writeln!(self.input, "charge {now} {quota} {cost}").expect("the program reads");
        let (admitted, lines) = self.answer();
        (admitted, lines[0])
    }

    /// Refunds up to `most` units of an admitted charge, counted from 0.
    pub(crate) fn refund(&mut self, now: u64, quota: &Quota, which: usize, most: u64) -> Line {
        let quota = changing_words(quota);
        writeln!(self.input, "refund {now} {quota} {which} {most}").expect("the program reads");
        self.answer().1[0]
    }

    fn answer(&mut self) -> Decided {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the program answers");
        let numbers: Vec<i64> =
            line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let (admitted, rest) = numbers.split_first().expect("the program answers");
        let lines = rest.chunks(5).map(|numbers| {
            let unsigned = |index: usize| u64::try_from(numbers[index]).expect("not negative");
            Line {
                units: unsigned(0),
                remaining: unsigned(1),
                next_after: unsigned(2),
                reset_after: unsigned(3),
                retry_after: u64::try_from(numbers[4]).ok(),
            }
        });
        (*admitted == 1, lines.collect())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the quota in the words of the program.
fn words(quota: &Quota) -> String {
    let (name, parameter) = name(quota);
    let lease = quota.lease().unwrap_or_default().as_micros();
    format!("{name} {} {} {parameter} {lease}", quota.limit(), quota.window().as_micros())
}

/// Returns a quota of a known algorithm in the words of the program.
fn changing_words(quota: &Quota) -> String {
    format!("{} {} {}", quota.limit(), quota.window().as_micros(), name(quota).1.max(1))
}

/// Returns the algorithm and its parameter in the words of the program.
fn name(quota: &Quota) -> (String, u64) {
    let name = facts(quota.algorithm()).proof.expect("a model").to_lowercase();
    let text = quota.algorithm().to_string();
    let parameter = text.trim_end_matches(')').split_once('(').map(|(_, number)| number);
    (name, parameter.map_or(0, |number| number.parse().expect("a number")))
}

/// Returns the algorithms that have a model.
pub(crate) fn proven() -> Vec<Algorithm> {
    Algorithm::EACH.iter().copied().filter(|it| facts(*it).proof.is_some()).collect()
}

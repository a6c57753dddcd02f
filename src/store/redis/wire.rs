//! Requests and answers as bytes: see lua/prelude.lua for the form.

use std::sync::Arc;

use redis::Value;
use smallvec::SmallVec;

use super::{error::Failure, key_name::Naming};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, ReceiptLine, Standing, Verdict},
    policy::Charge,
    quota::Quota,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Acquire,
    Peek,
    Force,
    Refund,
    Reset,
}

impl Operation {
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Acquire => "a",
            Self::Peek => "p",
            Self::Force => "f",
            Self::Refund => "g",
            Self::Reset => "r",
        }
    }
}

/// One line of a request, free of what it borrowed.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) key: Vec<u8>,
    /// The position in the caller's request.
    pub(super) position: usize,
    quota: Quota,
    cost: u64,
    most: u64,
    pub(super) shadow: bool,
    back: Option<(Mark, Quota)>,
}

/// Numbers in the script are doubles, exact below 2^53, far above what any quota has.
const MOST: u64 = (1 << 53) - 1;
const LINE: usize = 64;
/// The flags of a line: it is on trial; an earlier one has its key, so that the script looks at it
/// again; it ends a check.
const TRIAL: u8 = 1;
const AGAIN: u8 = 2;
const LAST: u8 = 4;
/// Instead of the units of a check that could not be decided along with others.
const UNDECIDED: f64 = -1.0;

impl Asked {
    pub(super) fn charge(naming: &Naming, position: usize, charge: &Charge<'_>) -> Self {
        Self {
            key: naming.name(charge),
            position,
            quota: *charge.quota(),
            cost: charge.cost(),
            most: charge.max_cost(),
            shadow: charge.is_shadow(),
            back: None,
        }
    }

    pub(super) fn refund(naming: &Naming, position: usize, spent: &ReceiptLine) -> Self {
        let charge = spent.charge();
        Self {
            key: naming.name(charge),
            position,
            quota: charge.quota_in_force(),
            cost: spent.units(),
            most: spent.units(),
            shadow: charge.is_shadow(),
            back: Some((spent.mark(), *charge.quota())),
        }
    }

    /// What gives back a line that has been spent.
    pub(super) fn undo(&self, line: &ChargeReply) -> Self {
        let back = Some((line.mark, self.quota));
        Self { cost: line.units, most: line.units, back, ..self.clone() }
    }

    /// The answer for a key from which nothing is missing.
    pub(super) fn untouched(&self) -> ChargeReply {
        let capacity = self.quota.capacity();
        ChargeReply {
            verdict: if self.cost > capacity { Verdict::OverCapacity } else { Verdict::Passed },
            units: 0,
            standing: Standing::full(capacity),
            mark: Mark::default(),
        }
    }

    /// Whether the charge can be judged by this answer to have passed.
    pub(super) fn passed(&self, line: &ChargeReply) -> bool {
        self.shadow || line.verdict == Verdict::Passed
    }

    fn pack(&self, bytes: &mut Vec<u8>, flags: u8) {
        let algorithm = self.quota.algorithm();
        bytes.extend([algorithm.number(), flags]);
        let mut push = |number: u64| {
            bytes.extend_from_slice(&(number.min(MOST) as f64).to_le_bytes());
        };
        push(self.quota.limit());
        push(self.quota.window_micros());
        push(algorithm.parameter());
        push(self.cost);
        push(self.most);
        if let Some((mark, quota)) = self.back {
            mark.parts().into_iter().for_each(&mut push);
            push(quota.limit());
            push(quota.window_micros());
        }
    }

    fn read(&self, operation: Operation, bytes: &[u8]) -> Option<ChargeReply> {
        let mut numbers = [0; LINE / 8];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = whole(bytes)?;
        }
        let [units, remaining, next_after, reset_after, retry_after, first, second, third] =
            numbers;
        let capacity = self.quota.capacity();
        let spent = operation == Operation::Refund || operation == Operation::Reset || units > 0;
        let waits = !spent && self.cost > remaining && self.cost <= capacity;
        Some(ChargeReply {
            verdict: if spent || self.cost <= remaining {
                Verdict::Passed
            } else if self.cost > capacity {
                Verdict::OverCapacity
            } else {
                Verdict::Refused
            },
            // The script counts no further than 2^53.
            units: if operation == Operation::Force && units > 0 { self.cost } else { units },
            standing: Standing {
                limit: capacity,
                remaining,
                next_after,
                reset_after,
                retry_after: waits.then_some(retry_after),
            },
            mark: Mark::new([first, second, third]),
        })
    }
}

/// The lines of one check, or of another operation, in the order in which the script wants them:
/// what binds before what is on trial.
pub(super) type Check = Arc<[Asked]>;

pub(super) fn in_order(mut asked: Vec<Asked>) -> Check {
    asked.sort_by_key(|line| line.shadow);
    asked.into()
}

/// Checks as the script wants them.
pub(super) fn pack(checks: &[Check]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(checks.iter().map(|check| check.len() * 82).sum());
    for check in checks {
        for (index, line) in check.iter().enumerate() {
            let again = check[..index].iter().any(|earlier| earlier.key == line.key);
            let last = index + 1 == check.len();
            let flag = |is: bool, flag: u8| if is { flag } else { 0 };
            line.pack(&mut bytes, flag(line.shadow, TRIAL) + flag(again, AGAIN) + flag(last, LAST));
        }
    }
    bytes
}

/// What the script answered to one check.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) time: Timestamp,
    /// A line for each that was asked, in their order.
    pub(super) lines: SmallVec<[ChargeReply; 1]>,
}

/// Whether this has the form of an answer to these checks.
pub(super) fn is_answer(checks: &[Check], value: &Value) -> bool {
    frame(checks, value).is_some()
}

/// The time of an answer, and its lines.
fn frame<'v>(checks: &[Check], value: &'v Value) -> Option<(Timestamp, &'v [u8])> {
    let Value::BulkString(bytes) = value else { return None };
    let (time, lines) = bytes.split_at_checked(8)?;
    let count = checks.iter().map(|check| check.len()).sum::<usize>();
    let time = Timestamp::from_micros(whole(time)?);
    (lines.len() == count * LINE).then_some((time, lines))
}

/// What came of each check: none for one that could not be decided along with the others.
pub(super) fn read(
    operation: Operation,
    checks: &[Check],
    value: &Value,
) -> Result<SmallVec<[Option<Reply>; 1]>, Failure> {
    let (time, mut lines) = frame(checks, value).ok_or(Failure::NotOurs)?;
    let reply = |check: &Check| {
        let mine;
        (mine, lines) = lines.split_at(check.len() * LINE);
        if mine.starts_with(&UNDECIDED.to_le_bytes()) && checks.len() > 1 {
            return Ok(None);
        }
        let lines = check.iter().zip(mine.chunks_exact(LINE));
        let lines = lines.map(|(asked, bytes)| asked.read(operation, bytes));
        let lines = lines.collect::<Option<_>>().ok_or(Failure::NotOurs)?;
        Ok(Some(Reply { time, lines }))
    };
    checks.iter().map(reply).collect()
}

fn whole(bytes: &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    (number >= 0.0 && number <= MOST as f64 && number.fract() == 0.0).then_some(number as u64)
}

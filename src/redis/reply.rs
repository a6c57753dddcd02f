//! The parser of the script's reply. `lua/prelude.lua` describes the format.

use redis::Value;
use smallvec::SmallVec;

use super::wire::{MAX_NUMBER, Operation, WireCharge, WireCheck};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Source, Standing, StoreReply, Verdict},
};

/// The number of bytes that the script returns for each charge: eight doubles.
const CHARGE_BYTES: usize = 64;
/// The number that the script returns in place of the units of a check that it could not decide as
/// part of a batch.
const UNDECIDED: f64 = -1.0;

/// The script's reply to one check.
#[derive(Debug)]
pub(super) struct CheckReply {
    pub(super) time: Timestamp,
    /// The reply to each charge, in the order of the [`WireCheck`].
    pub(super) charges: SmallVec<[ChargeReply; 1]>,
}

impl CheckReply {
    /// Returns the replies in the order of the caller's request.
    pub(super) fn into_store_reply(self, check: &WireCheck) -> StoreReply {
        let mut charges = self.charges;
        if check.charges().iter().enumerate().any(|(index, charge)| charge.position() != index) {
            for (charge, reply) in check.charges().iter().zip(charges.clone()) {
                charges[charge.position()] = reply;
            }
        }
        StoreReply { time: self.time, source: Source::Shared, charges }
    }
}

/// The replies to the checks of one call. A check that the script could not decide as part of the
/// batch has `None`.
pub(super) type CallReply = SmallVec<[Option<CheckReply>; 1]>;

/// Parses the reply to a call with these checks. Returns `None` if `value` cannot be that reply.
pub(super) fn parse<'c>(
    operation: Operation,
    checks: impl ExactSizeIterator<Item = &'c WireCheck>,
    value: &Value,
) -> Option<CallReply> {
    let Value::BulkString(bytes) = value else { return None };
    let (time, mut rest) = bytes.split_at_checked(8)?;
    let time = Timestamp::from_micros(number(time)?);
    let is_batch = checks.len() > 1;
    let mut replies = SmallVec::new();
    for check in checks {
        let bytes;
        (bytes, rest) = rest.split_at_checked(check.charges().len() * CHARGE_BYTES)?;
        if is_batch && bytes.starts_with(&UNDECIDED.to_le_bytes()) {
            replies.push(None);
            continue;
        }
        let charges = check.charges().iter().zip(bytes.chunks_exact(CHARGE_BYTES));
        let charges = charges.map(|(charge, bytes)| parse_charge(operation, charge, bytes));
        replies.push(Some(CheckReply { time, charges: charges.collect::<Option<_>>()? }));
    }
    rest.is_empty().then_some(replies)
}

fn parse_charge(operation: Operation, charge: &WireCharge, bytes: &[u8]) -> Option<ChargeReply> {
    let mut numbers = [0; CHARGE_BYTES / 8];
    for (parsed, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *parsed = number(bytes)?;
    }
    let [units, remaining, next_after, reset_after, retry_after, mark @ ..] = numbers;
    let (cost, capacity) = (charge.cost(), charge.capacity());
    let verdict = match operation {
        Operation::Refund | Operation::Reset | Operation::Block | Operation::Unblock => {
            Verdict::Passed
        }
        _ if units > 0 || cost <= remaining => Verdict::Passed,
        _ if cost > capacity => Verdict::OverCapacity,
        _ => Verdict::Refused,
    };
    Some(ChargeReply {
        verdict,
        // The script's numbers end at 2^53, but forced units are always spent in full.
        units: if operation == Operation::Force && units > 0 { cost } else { units },
        standing: Standing {
            limit: capacity,
            remaining,
            next_after,
            reset_after,
            retry_after: (verdict == Verdict::Refused).then_some(retry_after),
        },
        mark: Mark::new(mark),
    })
}

fn number(bytes: &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    (number >= 0.0 && number <= MAX_NUMBER as f64 && number.fract() == 0.0).then_some(number as u64)
}

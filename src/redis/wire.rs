//! The encoding of a request for the script, and the parser of its reply. `lua/prelude.lua` describes
//! both formats.
//!
//! The names of keys in the database are `{prefix}:{<hash or tag>}:<policy>:<algorithm and layout>`. In a cluster
//! the part in braces decides the slot. So the standings of a key under all policies share a slot, and so do
//! all keys with the same [tag](Key::tagged).

use std::{borrow::Cow, io::Write, time::Duration};

use redis::{Cmd, RedisWrite, Value};
use siphasher::sip128::SipHasher24;
use smallvec::SmallVec;

use super::config::RedisConfig;
use crate::{
    algorithm::block_micros,
    base64::{self, URL_SAFE},
    clock::Timestamp,
    decision::{ChargeReply, Mark, ReceiptLine, Source, Standing, StoreReply, Verdict},
    key::Key,
    policy::Charge,
    quota::Quota,
    store::Request,
};

/// The operation that the script performs on the charges of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Acquire,
    Peek,
    Force,
    Refund,
    Reset,
    Block,
    Unblock,
    /// Tests the commands of the script, and spends nothing.
    SelfTest,
}

impl Operation {
    /// Returns the operation's code in the script. `is_batch` is true for several checks in one
    /// call.
    pub(super) fn code(self, is_batch: bool) -> &'static str {
        match self {
            Self::Acquire if is_batch => "b",
            Self::Acquire => "a",
            Self::Peek => "p",
            Self::Force => "f",
            Self::Refund => "g",
            Self::Reset => "r",
            Self::Block => "k",
            Self::Unblock => "u",
            Self::SelfTest => "t",
        }
    }
}

/// The largest number in a request or a reply. The script's numbers are doubles, which are exact
/// below 2^53.
pub(super) const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The flag of a charge that never denies its check: a shadow or a trial.
const NOT_LIVE: u8 = 1;
/// The flag of a charge with the key of an earlier charge of its check, so that the script reads
/// the key again.
const SAME_KEY: u8 = 2;
/// The flag of a charge whose units beyond the cost are a lease.
const LEASE: u8 = 4;
/// The flag of a trial, which is spent also if its check is denied.
const TRIAL: u8 = 8;
/// The flag of the last charge of a check.
const LAST: u8 = 16;

/// One charge of a request, as the script needs it.
#[derive(Debug, Clone)]
pub(super) struct WireCharge {
    key_name: KeyName,
    /// The index of the charge in the caller's request.
    position: usize,
    /// The quota by which the script [counts](Quota::counted).
    quota: Quota,
    cost: u64,
    max_cost: u64,
    flags: u8,
    /// The part of a spent charge that a refund needs.
    spent: Option<(Mark, Quota)>,
}

impl WireCharge {
    pub(super) fn new(names: &KeyNames, position: usize, charge: &Charge<'_>) -> Self {
        Self {
            key_name: names.name(charge),
            position,
            quota: charge.quota().counted(),
            cost: charge.cost(),
            max_cost: charge.asked().max_cost,
            flags: flags(charge),
            spent: None,
        }
    }

    /// Creates the refund of a charge that was spent.
    fn refund(names: &KeyNames, position: usize, spent: &ReceiptLine) -> Self {
        let charge = &spent.charge;
        Self {
            key_name: names.name(charge),
            position,
            quota: charge.quota_in_force().counted(),
            cost: spent.units,
            max_cost: spent.units,
            flags: flags(charge) & !LEASE,
            spent: Some((spent.mark, charge.quota().counted())),
        }
    }

    /// Creates the refund of this charge, of which the script spent the units in `reply`.
    pub(super) fn undo(&self, reply: &ChargeReply) -> Self {
        let spent = Some((reply.mark, self.quota));
        Self { cost: reply.units, max_cost: reply.units, spent, ..self.clone() }
    }

    pub(super) fn key_name(&self) -> &[u8] {
        &self.key_name
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the reply to this charge if its key had spent nothing.
    pub(super) fn reply_of_full_key(&self) -> ChargeReply {
        let capacity = self.quota.capacity();
        ChargeReply {
            verdict: if self.cost > capacity { Verdict::OverCapacity } else { Verdict::Passed },
            units: 0,
            standing: Standing::full(capacity),
            mark: Mark::default(),
        }
    }

    /// Returns whether the charge is spent also if its check is denied.
    pub(super) fn is_trial(&self) -> bool {
        self.flags & TRIAL != 0
    }

    fn is_live(&self) -> bool {
        self.flags & NOT_LIVE == 0
    }

    /// Returns whether `reply` lets the check of this charge be admitted.
    pub(super) fn admits(&self, reply: &ChargeReply) -> bool {
        !self.is_live() || reply.verdict == Verdict::Passed
    }

    fn encode(&self, flags: u8, line: &mut SmallVec<[u8; MAX_LINE_BYTES]>) {
        line.extend_from_slice(&[self.quota.algorithm_number(), flags]);
        push(line, self.quota.limit());
        push(line, self.quota.window_micros());
        push(line, self.quota.parameter());
        push(line, self.cost);
        push(line, self.max_cost);
        if let Some((mark, quota)) = self.spent {
            mark.0.into_iter().for_each(|number| push(line, number));
            push(line, quota.limit());
            push(line, quota.window_micros());
        }
    }
}

fn push(line: &mut SmallVec<[u8; MAX_LINE_BYTES]>, number: u64) {
    line.extend_from_slice(&(number.min(MAX_NUMBER) as f64).to_le_bytes());
}

fn flags(charge: &Charge<'_>) -> u8 {
    let not_live = u8::from(!charge.is_live()) * NOT_LIVE;
    let lease = u8::from(charge.is_lease()) * LEASE;
    let trial = u8::from(charge.is_trial()) * TRIAL;
    not_live | lease | trial
}

/// The number of bytes of the longest line, which is the line of a refund.
const MAX_LINE_BYTES: usize = 2 + 10 * 8;

/// The charges of one check, or of another operation. Shadows and trials come after the live charges.
#[derive(Debug, Clone, Default)]
pub(super) struct WireCheck {
    charges: Vec<WireCharge>,
}

impl WireCheck {
    pub(super) fn new(mut charges: Vec<WireCharge>) -> Self {
        if !charges.iter().all(WireCharge::is_live) {
            charges.sort_by_key(|charge| !charge.is_live());
        }
        Self { charges }
    }

    /// Creates the charges of a request, and the operation on them.
    pub(super) fn of_request(names: &KeyNames, request: Request<'_>) -> (Operation, Self) {
        let (operation, charges) = match request {
            Request::Acquire(charges) => (Operation::Acquire, charges),
            Request::Peek(charges) => (Operation::Peek, charges),
            Request::Force(charges) => (Operation::Force, charges),
            Request::Reset(charges) => (Operation::Reset, charges),
            Request::Block(charges, _) => (Operation::Block, charges),
            Request::Unblock(charges) => (Operation::Unblock, charges),
            Request::Refund(receipt) => {
                let lines = receipt.lines().iter().enumerate();
                let refunds = lines.map(|(at, spent)| WireCharge::refund(names, at, spent));
                return (Operation::Refund, Self::new(refunds.collect()));
            }
        };
        let mut charges: Vec<_> = charges
            .iter()
            .enumerate()
            .map(|(position, charge)| WireCharge::new(names, position, charge))
            .collect();
        if let Request::Block(_, duration) = request {
            // The duration takes the place of the most units.
            charges.iter_mut().for_each(|charge| charge.max_cost = block_micros(duration));
        }
        (operation, Self::new(charges))
    }

    pub(super) fn charges(&self) -> &[WireCharge] {
        &self.charges
    }

    /// Appends a charge. It is not live if the one before it is not.
    pub(super) fn push(&mut self, charge: WireCharge) {
        self.charges.push(charge);
    }

    pub(super) fn into_charges(self) -> Vec<WireCharge> {
        self.charges
    }

    /// Returns whether each line is a check of its own for the script: these are released units, which may
    /// have the same key, and of which a foreign value stops no other.
    pub(super) fn is_release(&self, operation: Operation) -> bool {
        operation == Operation::Refund
            && self.charges.iter().all(|charge| charge.quota.is_concurrent())
    }

    /// Returns the order of the charges in the caller's request.
    pub(super) fn order(&self) -> Order {
        let positions = self.charges.iter().map(WireCharge::position);
        let is_same = positions.clone().enumerate().all(|(index, position)| index == position);
        Order(if is_same { Vec::new() } else { positions.collect() })
    }

    /// Appends a line for each charge to the argument of a command.
    fn encode(&self, operation: Operation, argument: &mut impl Write) {
        let are_apart = self.is_release(operation);
        for (index, charge) in self.charges.iter().enumerate() {
            let earlier = if are_apart { &[] } else { &self.charges[..index] };
            let mut flags = charge.flags;
            if earlier.iter().any(|earlier| earlier.key_name == charge.key_name) {
                flags |= SAME_KEY;
            }
            if are_apart || index + 1 == self.charges.len() {
                flags |= LAST;
            }
            let mut line = SmallVec::new();
            charge.encode(flags, &mut line);
            // The argument is a buffer in memory: writing to it cannot fail.
            let _ = argument.write_all(&line);
        }
    }
}

/// The positions of the charges of a [`WireCheck`] in the caller's request. Empty if both have the same order.
pub(super) struct Order(Vec<usize>);

impl Order {
    /// Puts the replies in the order of the charges in the caller's request.
    pub(super) fn restore(&self, mut reply: StoreReply) -> StoreReply {
        if !self.0.is_empty() {
            for (position, moved) in self.0.iter().zip(reply.charges.clone()) {
                reply.charges[*position] = moved;
            }
        }
        reply
    }
}

/// Appends the arguments of the script for these checks: the number of keys, the keys, the
/// operation, and the lines.
pub(super) fn encode(operation: Operation, checks: &[WireCheck], command: &mut Cmd) {
    command.arg(checks.iter().map(|check| check.charges.len()).sum::<usize>());
    for charge in checks.iter().flat_map(WireCheck::charges) {
        command.arg(charge.key_name());
    }
    command.arg(operation.code(checks.len() > 1));
    let mut argument = command.writer_for_next_arg();
    for check in checks {
        check.encode(operation, &mut argument);
    }
}

/// The number of bytes that the script returns for each charge: nine doubles, of which the first is the time.
const CHARGE_BYTES: usize = 72;
/// The number that the script returns in place of the units of a check that it could not decide as
/// part of a batch.
const UNDECIDED: f64 = -1.0;

/// The replies to the checks of one call, each in the order of the [`WireCheck`]. A check that the
/// script could not decide as part of the batch has `None`.
pub(super) type CallReply = Vec<Option<StoreReply>>;

/// Parses the reply to a call with these checks. Returns `None` if `value` cannot be that reply.
pub(super) fn parse(
    operation: Operation,
    checks: &[WireCheck],
    value: &Value,
) -> Option<CallReply> {
    let Value::BulkString(bytes) = value else { return None };
    let mut rest = bytes.as_slice();
    let mut replies = Vec::with_capacity(checks.len());
    for check in checks {
        let bytes;
        (bytes, rest) = rest.split_at_checked(check.charges().len() * CHARGE_BYTES)?;
        let (time, first) = bytes.split_at_checked(8)?;
        if checks.len() > 1 && first.starts_with(&UNDECIDED.to_le_bytes()) {
            replies.push(None);
            continue;
        }
        let time = Timestamp::from_micros(number(time)?);
        let lines = check.charges().iter().zip(bytes.chunks_exact(CHARGE_BYTES));
        let parsed = lines.map(|(charge, bytes)| parse_charge(operation, charge, bytes));
        let charges = parsed.collect::<Option<_>>()?;
        replies.push(Some(StoreReply { time, source: Source::Shared, charges }));
    }
    rest.is_empty().then_some(replies)
}

fn parse_charge(operation: Operation, charge: &WireCharge, bytes: &[u8]) -> Option<ChargeReply> {
    let mut numbers = [0; CHARGE_BYTES / 8];
    for (parsed, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *parsed = number(bytes)?;
    }
    let [_, units, remaining, next_after, reset_after, retry_after, mark @ ..] = numbers;
    let cost = charge.cost;
    let capacity = charge.quota.capacity();
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
            next_after: Duration::from_micros(next_after),
            reset_after: Duration::from_micros(reset_after),
            retry_after: (verdict == Verdict::Refused).then(|| Duration::from_micros(retry_after)),
        },
        mark: Mark(mark),
    })
}

fn number(bytes: &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    let whole = number as u64;
    (whole as f64 == number && whole <= MAX_NUMBER).then_some(whole)
}

/// The name of a key in the database. Names under policies with up to 38 letters need no
/// allocation.
type KeyName = SmallVec<[u8; 72]>;

/// The naming of keys, as configured by [`RedisConfig`].
#[derive(Clone)]
pub(super) struct KeyNames {
    prefix: Box<str>,
    secret: (u64, u64),
    is_plain: bool,
}

impl KeyNames {
    pub(super) fn new(config: &RedisConfig) -> Self {
        let RedisConfig { prefix, secret, plain_keys, .. } = config;
        Self { prefix: prefix.as_str().into(), secret: *secret, is_plain: *plain_keys }
    }

    /// Returns the name of the database key that holds the standing of a charge.
    pub(super) fn name(&self, charge: &Charge<'_>) -> KeyName {
        let mut name = KeyName::new();
        name.extend_from_slice(self.prefix.as_bytes());
        name.extend_from_slice(b":{");
        if let Some(tag) = charge.key().tag() {
            base64::encode(URL_SAFE, &tag.to_be_bytes(), |text| name.extend_from_slice(text));
            name.push(b'}');
            self.push_key(&mut name, charge.key());
        } else {
            self.push_key(&mut name, charge.key());
            name.push(b'}');
        }
        name.push(b':');
        name.extend_from_slice(charge.policy().name().as_bytes());
        name.push(b':');
        name.extend_from_slice(charge.quota().algorithm().layout().as_bytes());
        name
    }

    fn push_key(&self, name: &mut KeyName, key: &Key) {
        match key.plain() {
            Some(bytes) if self.is_plain => {
                name.push(b'=');
                push_escaped(name, bytes);
            }
            _ => {
                let hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
                let digest = hasher.hash(&key.encoded()).as_bytes();
                base64::encode(URL_SAFE, &digest, |text| name.extend_from_slice(text));
            }
        }
    }
}

/// Appends the bytes. Bytes that are not printable, braces and `%` are written as `%XX`.
fn push_escaped(text: &mut KeyName, bytes: &[u8]) {
    const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'%') {
            text.push(byte);
        } else {
            let high = HEX_DIGITS[usize::from(byte >> 4)];
            let low = HEX_DIGITS[usize::from(byte & 15)];
            text.extend_from_slice(&[b'%', high, low]);
        }
    }
}

/// Returns the name of the policy in the name of a key.
pub(super) fn policy(name: &[u8]) -> Cow<'_, str> {
    let policy = name.rsplit(|byte| *byte == b':').nth(1).unwrap_or_default();
    String::from_utf8_lossy(policy)
}

/// Returns the cluster slot of a key: the CRC-16 (XMODEM) of the part in braces, modulo 16384, as
/// the Redis Cluster specification defines it. Every name here has braces.
pub(super) fn slot(name: &[u8]) -> u16 {
    let tag = name.split(|byte| matches!(byte, b'{' | b'}')).nth(1).unwrap_or(name);
    let crc = tag.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_cluster_specification() {
        assert_eq!(slot(b"p:{123456789}:x"), 0x31c3);
        assert_eq!(slot(b"p:{foo}:x"), 12_182);
    }

    #[test]
    fn a_name_has_its_policy() {
        assert_eq!(policy(b"p:{=a:b}:per-ip:l2"), "per-ip");
        assert_eq!(policy(b"p:{tag}=x:y:sign-ups.day:t2"), "sign-ups.day");
    }
}

//! The memory layout of a log.
//!
//! A log of one or two records is in the state of its key and allocates nothing. A longer log is a header and a
//! ring buffer of records.

use std::collections::VecDeque;

use super::bytes::{MAX_NUMBER, MAX_WINDOW, Numbers, write_numbers};

/// The most records of a log whose bytes are read. A log has at most 20,001.
const MAX_RECORDS: u64 = 1 << 15;

/// 10 bytes: a time modulo 2^48 microseconds (9 years, against windows of at most 400 days) and units
/// modulo 2^32 (against limits of at most 2^31), little-endian.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record([u8; 10]);

impl Record {
    pub(super) fn new(time: u64, total: u32) -> Self {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&time.to_le_bytes());
        bytes[6..].copy_from_slice(&total.to_le_bytes());
        Self(bytes)
    }

    pub(super) fn time_bits(self) -> u64 {
        let [a, b, c, d, e, f, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    pub(super) fn total(self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns this record with a total that is lower by `units`.
    pub(super) fn without(mut self, units: u32) -> Self {
        let total = self.total().wrapping_sub(units);
        self.0[6..].copy_from_slice(&total.to_le_bytes());
        self
    }
}

/// The number of bits of a record's number.
const RECORD_NUMBER_BITS: usize = 48;

/// The number of bits of a record's time.
pub(super) const TIME_BITS: u32 = 48;

/// The numbers of a log, unpacked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LogHeader {
    /// The number of the oldest record. No two records of a key have the same number.
    pub(super) head: u64,
    /// The time of the last charge; records are dated relative to it.
    pub(super) seen: u64,
    /// The window of the last charge, and the life of all records but the old ones.
    pub(super) window: u64,
    /// The number of records at the front that have the life `old_life`.
    pub(super) old_records: u32,
    pub(super) old_life: u64,
    /// The running total before the oldest record.
    pub(super) base: u32,
    /// The number of records.
    pub(super) len: u32,
}

/// The records of a log, oldest first, in two pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records<'a>(&'a [Record], &'a [Record]);

impl Records<'_> {
    pub(super) fn get(self, index: usize) -> Record {
        let Self(older, newer) = self;
        if index < older.len() { older[index] } else { newer[index - older.len()] }
    }

    pub(super) fn newest(self) -> Option<Record> {
        self.1.last().or(self.0.last()).copied()
    }
}

/// The log of one key, in 40 bytes.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) enum PackedLog {
    /// A log of one life, whose `base` is 0. The fields are bytes, because larger types would be aligned and leave
    /// space unused.
    Short {
        head: [u8; RECORD_NUMBER_BITS / 8],
        seen: [u8; 7],
        /// The window, and in the two highest bits the number of records. A window has 45 bits.
        window_and_len: [u8; 6],
        records: [Record; 2],
    },
    Long(Box<LongLog>),
}

#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct LongLog {
    header: LogHeader,
    records: VecDeque<Record>,
}

const LEN_SHIFT: u32 = 46;

impl Default for PackedLog {
    fn default() -> Self {
        Self::Short {
            head: [0; 6],
            seen: [0; 7],
            window_and_len: [0; 6],
            records: Default::default(),
        }
    }
}

impl PackedLog {
    pub(super) fn header(&self) -> LogHeader {
        match self {
            Self::Short { head, .. } => {
                let (seen, window, len) = self.last_charge();
                LogHeader { head: unpack(*head), seen, window, len, ..LogHeader::default() }
            }
            Self::Long(long) => long.header,
        }
    }

    /// Returns the time of the last charge, its window, and the number of records.
    pub(super) fn last_charge(&self) -> (u64, u64, u32) {
        match self {
            Self::Short { seen, window_and_len, .. } => {
                let both = unpack(*window_and_len);
                (unpack(*seen), both & ((1 << LEN_SHIFT) - 1), (both >> LEN_SHIFT) as u32)
            }
            Self::Long(long) => (long.header.seen, long.header.window, long.header.len),
        }
    }

    pub(super) fn records(&self, log: &LogHeader) -> Records<'_> {
        match self {
            Self::Short { records, .. } => Records(&records[..log.len as usize], &[]),
            Self::Long(long) => {
                let (older, newer) = long.records.as_slices();
                Records(older, newer)
            }
        }
    }

    /// Replaces a record, or adds one after the newest.
    pub(super) fn set(&mut self, index: u32, record: Record) {
        let index = index as usize;
        match self {
            Self::Short { records, .. } => records[index] = record,
            Self::Long(long) if index == long.records.len() => long.records.push_back(record),
            Self::Long(long) => long.records[index] = record,
        }
    }

    /// Drops the oldest `count` records.
    pub(super) fn drop_oldest(&mut self, log: &mut LogHeader, count: u32) {
        match self {
            Self::Short { records, .. } => records.rotate_left(count as usize),
            Self::Long(long) => drop(long.records.drain(..count as usize)),
        }
        log.len -= count;
        log.old_records = log.old_records.saturating_sub(count);
        log.head += u64::from(count);
    }

    /// Writes the header back.
    ///
    /// A short log has one life. If its records have two, because the memory for a long log was refused,
    /// all get the longer one: their units come back late, never early.
    pub(super) fn write(&mut self, log: &mut LogHeader) {
        match self {
            Self::Short { head, seen, window_and_len, records } => {
                *records = records.map(|record| record.without(log.base));
                (log.base, log.old_records) = (0, 0);
                (*head, *seen) = (pack(log.head), pack(log.seen));
                *window_and_len = pack(log.window | u64::from(log.len) << LEN_SHIFT);
            }
            Self::Long(long) => long.header = *log,
        }
    }

    /// Returns whether the log can take one more record in the memory that it has.
    pub(super) fn has_room(&self, log: &LogHeader) -> bool {
        (log.len as usize) < self.capacity()
            && (log.old_records == 0 || matches!(self, Self::Long(_)))
    }

    /// Gives the log the memory for this number of records.
    pub(super) fn resize(&mut self, log: &LogHeader, capacity: usize) {
        if let Self::Long(long) = self {
            long.records.shrink_to(capacity);
            long.records.reserve_exact(capacity - long.records.len());
            return;
        }
        let mut records = VecDeque::with_capacity(capacity);
        records.extend(self.records(log).0);
        *self = Self::Long(Box::new(LongLog { header: *log, records }));
    }

    /// Returns the number of records that the log can hold in the memory that it has.
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Short { records, .. } => records.len(),
            Self::Long(long) => long.records.capacity(),
        }
    }

    /// Returns the bytes of heap memory that the log holds.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long(_) => Self::heap_bytes_of(self.capacity()),
        }
    }

    /// Returns the bytes of heap memory of a long log of this capacity.
    pub(super) fn heap_bytes_of(capacity: usize) -> usize {
        size_of::<LongLog>() + capacity * size_of::<Record>()
    }

    /// Appends the header and the records to the bytes of a state. The totals are written as in a short log,
    /// whose `base` is 0. So a long log that has become short is written in the same way.
    pub(super) fn write_all(&self, bytes: &mut Vec<u8>) {
        let log = self.header();
        let LogHeader { head, seen, window, old_records, base, len, .. } = log;
        let old_life = if old_records > 0 { log.old_life } else { 0 };
        write_numbers(bytes, [head, seen, window, old_records.into(), old_life, len.into()]);
        let Records(older, newer) = self.records(&log);
        let records = older.iter().chain(newer);
        records.for_each(|record| bytes.extend_from_slice(&record.without(base).0));
    }

    /// Restores a log.
    pub(super) fn read_all(numbers: &mut Numbers<'_>) -> Option<Self> {
        let head = numbers.next((1 << RECORD_NUMBER_BITS) - 1)?;
        let seen = numbers.next(MAX_NUMBER)?;
        let window = numbers.next(MAX_WINDOW)?;
        let old_records = numbers.next(MAX_RECORDS)? as u32;
        let old_life = numbers.next(MAX_WINDOW)?;
        let len = numbers.next(MAX_RECORDS)? as u32;
        let records = numbers.chunks(len as usize)?;
        let mut log = LogHeader { head, seen, window, old_records, old_life, base: 0, len };
        let mut read = Self::default();
        if records.len() > read.capacity() || old_records > 0 {
            read.resize(&LogHeader::default(), records.len());
        }
        for (index, record) in (0..len).zip(records) {
            read.set(index, Record(*record));
        }
        read.write(&mut log);
        (old_records <= len).then_some(read)
    }
}

/// Returns the low bytes of a number.
fn pack<const N: usize>(number: u64) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&number.to_le_bytes()[..N]);
    bytes
}

fn unpack<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A [`KeyState`](super::super::KeyState) of 48 bytes has room for this.
    #[test]
    fn a_log_takes_40_bytes() {
        assert_eq!(size_of::<PackedLog>(), 40);
    }
}

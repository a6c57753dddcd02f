//! The memory layout of a log.
//!
//! A log of one or two records is in the state of its key and allocates nothing. A longer log has one
//! allocation: a ring buffer of records. The first two places of the buffer hold the numbers that only
//! a long log needs.

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
    /// The place of the oldest record in the ring buffer.
    start: u32,
}

/// The records of a log, oldest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records<'a> {
    places: &'a [Record],
    start: usize,
    len: usize,
}

impl<'a> Records<'a> {
    #[inline(always)]
    pub(super) fn get(self, index: usize) -> Record {
        self.places[place(self.start, index, self.places.len())]
    }

    #[inline(always)]
    pub(super) fn newest(self) -> Option<Record> {
        self.len.checked_sub(1).map(|newest| self.get(newest))
    }

    /// Returns the records as two slices, the older ones first.
    fn as_slices(self) -> (&'a [Record], &'a [Record]) {
        let (wrapped, older) = self.places.split_at(self.start);
        match self.len.checked_sub(older.len()) {
            Some(rest) => (older, &wrapped[..rest]),
            None => (&older[..self.len], &[]),
        }
    }
}

/// Returns the place of a record in a ring buffer.
#[inline(always)]
fn place(start: usize, index: usize, capacity: usize) -> usize {
    let place = start + index;
    if place < capacity { place } else { place - capacity }
}

/// The log of one key, in 40 bytes. The fields are bytes, because larger types would be aligned and
/// leave space unused.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) enum PackedLog {
    Short {
        common: CommonHeader,
        /// In a short log, `base`, `old_records` and `start` are 0.
        records: [Record; 2],
    },
    Long {
        common: CommonHeader,
        base: [u8; 4],
        /// First `old_life` and `old_records`, then `start` and `len`, each pair in the form of a record,
        /// then the ring buffer.
        places: Box<[Record]>,
    },
}

/// The numbers that every log has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CommonHeader {
    head: [u8; RECORD_NUMBER_BITS / 8],
    seen: [u8; 7],
    /// The window, and in the two highest bits the number of records of a short log. A window has 45 bits.
    window_and_len: [u8; 6],
}

const LEN_SHIFT: u32 = 46;

/// The places of a long log that hold numbers.
const HEADER_PLACES: usize = 2;

impl Default for PackedLog {
    fn default() -> Self {
        Self::Short { common: CommonHeader::default(), records: Default::default() }
    }
}

impl PackedLog {
    #[inline(always)]
    pub(super) fn header(&self) -> LogHeader {
        match self {
            Self::Short { common, .. } => {
                let (window, len) = common.window_and_len();
                let (head, seen) = (unpack(common.head), unpack(common.seen));
                LogHeader { head, seen, window, len, ..LogHeader::default() }
            }
            Self::Long { common, base, places } => LogHeader {
                head: unpack(common.head),
                seen: unpack(common.seen),
                window: common.window_and_len().0,
                old_life: places[0].time_bits(),
                old_records: places[0].total(),
                start: places[1].time_bits() as u32,
                len: places[1].total(),
                base: u32::from_le_bytes(*base),
            },
        }
    }

    /// Returns the time of the last charge and its window.
    #[inline(always)]
    pub(super) fn seen_and_window(&self) -> (u64, u64) {
        let (Self::Short { common, .. } | Self::Long { common, .. }) = self;
        (unpack(common.seen), common.window_and_len().0)
    }

    #[inline(always)]
    pub(super) fn records(&self, log: &LogHeader) -> Records<'_> {
        let places = match self {
            Self::Short { records, .. } => records,
            Self::Long { places, .. } => &places[HEADER_PLACES..],
        };
        Records { places, start: log.start as usize, len: log.len as usize }
    }

    /// Replaces a record, or writes the place after the newest.
    #[inline(always)]
    pub(super) fn set(&mut self, log: &LogHeader, index: u32, record: Record) {
        let places = match self {
            Self::Short { records, .. } => records,
            Self::Long { places, .. } => &mut places[HEADER_PLACES..],
        };
        places[place(log.start as usize, index as usize, places.len())] = record;
    }

    /// Drops the oldest `count` records from the header of a log.
    #[inline(always)]
    pub(super) fn drop_oldest(&self, log: &mut LogHeader, count: u32) {
        log.start = place(log.start as usize, count as usize, self.capacity()) as u32;
        log.len -= count;
        log.old_records = log.old_records.saturating_sub(count);
        log.head += u64::from(count);
    }

    /// Writes the header back.
    ///
    /// A short log has one life. If its records have two, because the memory for a long log was refused,
    /// all get the longer one: their units come back late, never early.
    #[inline(always)]
    pub(super) fn write(&mut self, log: &mut LogHeader) {
        match self {
            Self::Short { common, records } => {
                if log.start > 0 {
                    records.swap(0, 1);
                }
                if log.base != 0 {
                    *records = records.map(|record| record.without(log.base));
                }
                (log.start, log.base, log.old_records) = (0, 0, 0);
                common.pack(log, log.len);
            }
            Self::Long { common, base, places } => {
                common.pack(log, 0);
                *base = log.base.to_le_bytes();
                places[0] = Record::new(log.old_life, log.old_records);
                places[1] = Record::new(log.start.into(), log.len);
            }
        }
    }

    /// Returns whether the log can take one more record in the memory that it has.
    #[inline]
    pub(super) fn has_room(&self, log: &LogHeader) -> bool {
        (log.len as usize) < self.capacity()
            && (log.old_records == 0 || matches!(self, Self::Long { .. }))
    }

    /// Moves the records to a ring buffer of this capacity.
    #[cold]
    pub(super) fn resize(&mut self, log: &mut LogHeader, capacity: usize) {
        let (older, newer) = self.records(log).as_slices();
        let mut places = Vec::with_capacity(HEADER_PLACES + capacity);
        places.resize(HEADER_PLACES, Record::default());
        places.extend_from_slice(older);
        places.extend_from_slice(newer);
        places.resize(HEADER_PLACES + capacity, Record::default());
        log.start = 0;
        let (common, base) = (CommonHeader::default(), [0; 4]);
        *self = Self::Long { common, base, places: places.into_boxed_slice() };
        self.write(log);
    }

    /// Returns the number of records that the log can hold in the memory that it has.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Short { records, .. } => records.len(),
            Self::Long { places, .. } => places.len() - HEADER_PLACES,
        }
    }

    /// Returns the bytes of heap memory that the log holds.
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long { places, .. } => size_of_val::<[Record]>(places),
        }
    }

    /// Appends the header and the records to the bytes of a state. The totals are written as in a short log,
    /// whose `base` is 0. So a long log that has become short is written in the same way.
    pub(super) fn write_all(&self, bytes: &mut Vec<u8>) {
        let log = self.header();
        let LogHeader { head, seen, window, old_records, base, len, .. } = log;
        let old_life = if old_records > 0 { log.old_life } else { 0 };
        write_numbers(bytes, [head, seen, window, old_records.into(), old_life, len.into()]);
        let (older, newer) = self.records(&log).as_slices();
        bytes.reserve((older.len() + newer.len()) * size_of::<Record>());
        older
            .iter()
            .chain(newer)
            .for_each(|record| bytes.extend_from_slice(&record.without(base).0));
    }

    /// Restores a log.
    pub(super) fn read_all(numbers: &mut Numbers<'_>) -> Option<Self> {
        let (head, seen) =
            (numbers.next((1 << RECORD_NUMBER_BITS) - 1)?, numbers.next(MAX_NUMBER)?);
        let (window, old_records) = (numbers.next(MAX_WINDOW)?, numbers.next(MAX_RECORDS)?);
        let (old_life, len) = (numbers.next(MAX_WINDOW)?, numbers.next(MAX_RECORDS)? as u32);
        let old_records = old_records as u32;
        let mut log =
            LogHeader { head, seen, window, old_records, old_life, base: 0, len, start: 0 };
        let mut read = Self::default();
        if len as usize > read.capacity() || old_records > 0 {
            let mut empty = LogHeader::default();
            read.resize(&mut empty, len as usize);
        }
        let places = match &mut read {
            Self::Short { records, .. } => records,
            Self::Long { places, .. } => &mut places[HEADER_PLACES..],
        };
        for (place, bytes) in places.iter_mut().zip(numbers.chunks(len as usize)?) {
            *place = Record(*bytes);
        }
        read.write(&mut log);
        (old_records <= len).then_some(read)
    }

    /// Returns the bytes of heap memory of a long log of this capacity.
    pub(super) fn heap_bytes_of(capacity: usize) -> usize {
        (HEADER_PLACES + capacity) * size_of::<Record>()
    }
}

impl CommonHeader {
    #[inline(always)]
    fn pack(&mut self, log: &LogHeader, short_len: u32) {
        self.head = pack(log.head);
        self.seen = pack(log.seen);
        self.window_and_len = pack(log.window | u64::from(short_len) << LEN_SHIFT);
    }

    #[inline(always)]
    fn window_and_len(&self) -> (u64, u32) {
        let both = unpack(self.window_and_len);
        (both & ((1 << LEN_SHIFT) - 1), (both >> LEN_SHIFT) as u32)
    }
}

/// Returns the low bytes of a number.
#[inline(always)]
fn pack<const N: usize>(number: u64) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&number.to_le_bytes()[..N]);
    bytes
}

#[inline(always)]
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

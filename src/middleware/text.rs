//! The text of headers and documents, written without an allocation of its own.

use std::sync::LazyLock;

use http::HeaderValue;

/// A text that is written from its end, as the digits of a number come.
pub(super) struct Text<'b> {
    room: &'b mut [u8],
    first: usize,
}

impl<'b> Text<'b> {
    #[inline]
    pub(super) fn at_end_of(room: &'b mut [u8]) -> Self {
        let first = room.len();
        Self { room, first }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.room[self.first..]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.room.len()
    }

    /// Writes `part` before what has been written.
    #[inline]
    pub(super) fn part(&mut self, part: &[u8]) {
        let end = self.first;
        self.first -= part.len();
        self.room[self.first..end].copy_from_slice(part);
    }

    /// Writes a number in decimal before what has been written. It takes up to two bytes more
    /// than it has digits.
    #[inline]
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 1_000 {
            self.part(&DIGITS[(number % 1_000) as usize]);
            number /= 1_000;
        }
        self.part(&DIGITS[number as usize]);
        self.first += usize::from(number < 100) + usize::from(number < 10);
    }
}

/// A number as a header value. Small ones, which most are, allocate nothing.
#[inline]
pub(super) fn number(number: u64) -> HeaderValue {
    match usize::try_from(number).ok().and_then(|number| SMALL.get(number)) {
        Some(value) => value.clone(),
        None => large(number),
    }
}

/// `HeaderValue::from` allocates twice.
fn large(number: u64) -> HeaderValue {
    HeaderValue::from_bytes(Decimal::of(number).as_bytes())
        .unwrap_or_else(|_| HeaderValue::from(number))
}

/// The digits of a number.
pub(super) struct Decimal {
    room: [u8; 24],
    first: usize,
}

impl Decimal {
    #[inline]
    pub(super) fn of(number: u64) -> Self {
        let mut room = [0; 24];
        let mut text = Text::at_end_of(&mut room);
        text.number(number);
        let first = text.first;
        Self { room, first }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.room[self.first..]
    }
}

/// The numbers below 1000.
static SMALL: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let value = |(number, digits): (usize, &'static [u8; 3])| {
        let leading = usize::from(number < 100) + usize::from(number < 10);
        let text = std::str::from_utf8(&digits[leading..]).unwrap_or_default();
        HeaderValue::from_static(text)
    };
    DIGITS.iter().enumerate().map(value).collect()
});

/// Three digits for each number below 1000.
static DIGITS: [[u8; 3]; 1_000] = {
    let mut digits = [[0; 3]; 1_000];
    let mut number = 0;
    while number < 1_000 {
        digits[number] = [
            b'0' + (number / 100) as u8,
            b'0' + (number / 10 % 10) as u8,
            b'0' + (number % 10) as u8,
        ];
        number += 1;
    }
    digits
};

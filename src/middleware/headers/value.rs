//! Numbers as header values.

use std::str;

use http::HeaderValue;

/// The smallest number whose header value needs an allocation.
pub(super) const SMALL_NUMBERS: u64 = SMALL.len() as u64;

/// Returns a number as a header value.
#[inline]
pub(in crate::middleware) fn number(number: u64) -> HeaderValue {
    match usize::try_from(number).ok().and_then(|number| SMALL.get(number)) {
        Some(digits) => HeaderValue::from_static(digits),
        None => large(number),
    }
}

/// Formats a large number with one allocation, where [`HeaderValue::from`] needs two.
fn large(number: u64) -> HeaderValue {
    HeaderValue::from_str(itoa::Buffer::new().format(number))
        .unwrap_or_else(|_| HeaderValue::from(number))
}

/// Parses a header value as a number.
pub(super) fn parse(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

/// The digits of the numbers below 1000.
static SMALL: [&str; 1_000] = {
    let mut texts = [""; 1_000];
    let mut number = 0;
    while number < texts.len() {
        let leading_zeros = (number < 100) as usize + (number < 10) as usize;
        texts[number] = match str::from_utf8(THREE_DIGITS[number].split_at(leading_zeros).1) {
            Ok(digits) => digits,
            Err(_) => "",
        };
        number += 1;
    }
    texts
};

/// Three digits for each number below 1000.
static THREE_DIGITS: [[u8; 3]; 1_000] = {
    let mut digits = [[0; 3]; 1_000];
    let mut number = 0;
    while number < digits.len() {
        digits[number] = [
            b'0' + (number / 100) as u8,
            b'0' + (number / 10 % 10) as u8,
            b'0' + (number % 10) as u8,
        ];
        number += 1;
    }
    digits
};

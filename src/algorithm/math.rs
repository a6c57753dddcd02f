//! Exact integer products and quotients, of which `limit * window` may need more than 64 bits, the
//! periods of counters, and the search for a time.

/// The most units that a counter counts. Far above any limit and far from overflow; forced charges
/// beyond it are not counted.
pub(super) const MAX_COUNT: u64 = 1 << 52;

/// Returns the first multiple of the window after `time`.
pub(super) fn next_edge(time: u64, window: u64) -> u64 {
    (time / window + 1) * window
}

/// Returns the end of the bucket that holds `now`. Edges are the multiples of `window / n`, each
/// rounded up to a microsecond on its own, so that they do not drift when `n` does not divide.
pub(super) fn bucket_end(window: u64, n: u64, now: u64) -> u64 {
    mul_div_ceil(mul_div(now, n, window) + 1, window, n)
}

/// Returns `a * b / c`, rounded down. The bounds of quotas ensure that `c` is not 0 and that the result
/// fits.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    mul_add_div_rem(a, b, 0, c).0
}

/// Returns `a * b / c`, rounded up.
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: u64) -> u64 {
    let (quotient, remainder) = mul_add_div_rem(a, b, 0, c);
    quotient + u64::from(remainder > 0)
}

/// Returns the quotient and the remainder of `(a * b + d) / c`.
pub(crate) fn mul_add_div_rem(a: u64, b: u64, d: u64, c: u64) -> (u64, u64) {
    // A division of 64 bits is much cheaper than one of 128 bits, and nearly always suffices.
    match a.checked_mul(b).and_then(|product| product.checked_add(d)) {
        Some(sum) if sum < c => (0, sum),
        Some(sum) => (sum / c, sum % c),
        None => {
            let sum = u128::from(a) * u128::from(b) + u128::from(d);
            let quotient = u64::try_from(sum / u128::from(c)).unwrap_or(u64::MAX);
            (quotient, (sum % u128::from(c)) as u64)
        }
    }
}

/// Returns the first time in `from..=to` at which `used` is at most `target`.
///
/// `used` never grows with time and is at most `target` at `to`. A search, because a sum of rounded
/// ramps has no inverse; it runs only while units are carried.
pub(super) fn first_time(from: u64, to: u64, target: u64, used: impl Fn(u64) -> u64) -> u64 {
    let mut low = from;
    let mut high = to.max(from);
    while low < high {
        let middle = low.midpoint(high);
        if used(middle) <= target {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

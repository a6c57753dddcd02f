//! The size of a memory store as text.

/// Returns a size as text: `1,000,000 keys, 256 MiB`.
pub(crate) fn text(keys: usize, bytes: usize) -> String {
    format!("{} keys, {}", grouped(keys), bytes_text(bytes))
}

/// Returns a number with a comma after each group of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number of bytes in the largest unit of which it is a multiple.
fn bytes_text(bytes: usize) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{} {name}", grouped(bytes / unit)),
        None => format!("{} bytes", grouped(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(text(1_000_000, 256 << 20), "1,000,000 keys, 256 MiB");
        assert_eq!(text(999, 1_001), "999 keys, 1,001 bytes");
        assert_eq!(text(100_000, 3 << 30), "100,000 keys, 3 GiB");
        assert_eq!(text(1, 0), "1 keys, 0 bytes");
    }
}

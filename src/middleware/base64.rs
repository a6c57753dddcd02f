//! Base64 (RFC 4648, section 4), as headers carry bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the bytes; `padded` to a multiple of four characters or not.
pub(super) fn push(text: &mut Vec<u8>, bytes: &[u8], padded: bool) {
    text.reserve(bytes.len().div_ceil(3) * 4);
    let (groups, rest) = bytes.as_chunks::<3>();
    for group in groups {
        text.extend_from_slice(&encode(*group));
    }
    if !rest.is_empty() {
        let mut group = [0; 3];
        group[..rest.len()].copy_from_slice(rest);
        let mut characters = encode(group);
        characters[rest.len() + 1..].fill(b'=');
        let length = if padded { 4 } else { rest.len() + 1 };
        text.extend_from_slice(&characters[..length]);
    }
}

fn encode([a, b, c]: [u8; 3]) -> [u8; 4] {
    let sixes = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63];
    sixes.map(|six| ALPHABET[usize::from(six & 63)])
}

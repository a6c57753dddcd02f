//! Base64 (RFC 4648, section 4), as headers carry bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Hands over the characters for the bytes, in groups; `padded` to a multiple of four or not.
pub(super) fn encode(bytes: &[u8], padded: bool, mut write: impl FnMut(&[u8])) {
    let (groups, rest) = bytes.as_chunks::<3>();
    for group in groups {
        write(&characters(*group));
    }
    if !rest.is_empty() {
        let mut group = [0; 3];
        group[..rest.len()].copy_from_slice(rest);
        let mut characters = characters(group);
        characters[rest.len() + 1..].fill(b'=');
        let length = if padded { 4 } else { rest.len() + 1 };
        write(&characters[..length]);
    }
}

fn characters([a, b, c]: [u8; 3]) -> [u8; 4] {
    let sixes = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63];
    sixes.map(|six| ALPHABET[usize::from(six & 63)])
}

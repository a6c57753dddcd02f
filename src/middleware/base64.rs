//! Base64 (RFC 4648, section 4), as headers carry bytes.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the bytes; `padded` to a multiple of four characters or not.
pub(super) fn push(text: &mut Vec<u8>, bytes: &[u8], padded: bool) {
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let [a, b, c] = group;
        let sixes = [a >> 2, (a & 3) << 4 | b >> 4, (b & 15) << 2 | c >> 6, c & 63];
        for (index, six) in sixes.into_iter().enumerate() {
            if index <= chunk.len() {
                text.push(ALPHABET[usize::from(six)]);
            } else if padded {
                text.push(b'=');
            }
        }
    }
}

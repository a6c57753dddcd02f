//! Base64 (RFC 4648, section 4), as headers carry bytes.

use smallvec::SmallVec;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The characters for the bytes; `padded` to a multiple of four or not.
pub(super) fn encode(bytes: &[u8], padded: bool) -> SmallVec<[u8; 512]> {
    let mut text = SmallVec::new();
    // What is not written below is padding.
    text.resize(bytes.len().div_ceil(3) * 4, b'=');
    let (groups, rest) = bytes.as_chunks::<3>();
    let (quads, _) = text.as_chunks_mut::<4>();
    for (quad, group) in quads.iter_mut().zip(groups) {
        *quad = characters(*group);
    }
    if let Some(quad) = quads.get_mut(groups.len()) {
        let mut group = [0; 3];
        group[..rest.len()].copy_from_slice(rest);
        let used = rest.len() + 1;
        quad[..used].copy_from_slice(&characters(group)[..used]);
        if !padded {
            text.truncate(groups.len() * 4 + used);
        }
    }
    text
}

fn characters([a, b, c]: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, a, b, c]);
    [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift) as usize & 63])
}

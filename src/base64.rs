//! Base64 (RFC 4648), for the names of keys and for headers.

/// The alphabet of section 4.
pub(crate) const STANDARD: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The alphabet of section 5, which is safe in URLs and file names.
#[cfg(feature = "redis")]
pub(crate) const URL_SAFE: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes `bytes` in this alphabet, without padding, and calls `push` with the characters of each group of 24 bits.
pub(crate) fn encode(alphabet: &[u8; 64], bytes: &[u8], mut push: impl FnMut(&[u8])) {
    let (groups, rest) = bytes.as_chunks();
    groups.iter().for_each(|group| push(&characters(alphabet, *group)));
    // The last group may have 8 or 16 bits, and 2 or 3 characters.
    if !rest.is_empty() {
        let mut group = [0; 3];
        group[..rest.len()].copy_from_slice(rest);
        push(&characters(alphabet, group)[..=rest.len()]);
    }
}

fn characters(alphabet: &[u8; 64], [first, second, third]: [u8; 3]) -> [u8; 4] {
    let bits = u32::from_be_bytes([0, first, second, third]);
    [18, 12, 6, 0].map(|shift| alphabet[(bits >> shift & 63) as usize])
}

/// Returns the characters of `bytes` in the alphabet of section 4, without padding.
pub(crate) fn unpadded(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    encode(STANDARD, bytes, |characters| text.extend_from_slice(characters));
    text
}

/// Returns the text of `bytes` in the alphabet of section 4.
pub(crate) fn padded(bytes: &[u8]) -> String {
    let mut text = unpadded(bytes);
    text.resize(bytes.len().div_ceil(3) * 4, b'=');
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of section 10.
    #[test]
    fn texts_follow_the_specification() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(padded(bytes.as_bytes()), text);
            assert_eq!(unpadded(bytes.as_bytes()), text.trim_end_matches('=').as_bytes());
        }
    }

    #[test]
    fn each_alphabet_has_its_last_characters() {
        assert_eq!(padded(&[0xfb, 0xff]), "+/8=");
        #[cfg(feature = "redis")]
        {
            let mut text = Vec::new();
            encode(URL_SAFE, &[0xfb, 0xff], |characters| text.extend_from_slice(characters));
            assert_eq!(text, b"-_8");
        }
    }
}

//! The digest of a text without a secret.

use siphasher::sip128::SipHasher24;

/// Returns a digest under a fixed secret. It shortens long texts, and makes the log lines of several
/// processes comparable.
pub(super) fn fixed_digest(bytes: &[u8]) -> [u8; 16] {
    SipHasher24::new_with_keys(0x706c_696d, 0x736f_6c6c).hash(bytes).as_bytes()
}

/// Splits a digest into two words.
pub(super) fn words(digest: &[u8; 16]) -> [u64; 2] {
    let (low, high) = digest.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().unwrap_or_default()))
}

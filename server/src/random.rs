//! Random numbers of the operating system.

/// Returns `N` random bytes, from which others cannot be guessed.
///
/// # Panics
///
/// Panics if the operating system has no random numbers, which does not happen after it has started.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("random numbers of the operating system");
    bytes
}

/// Returns a random token of 128 bits.
pub(crate) fn token() -> String {
    format!("{:032x}", u128::from_be_bytes(bytes()))
}

//! The key that a charge is made to.

use std::{
    fmt,
    hash::{Hash, Hasher},
    num::NonZeroU64,
};

use siphasher::sip128::{SipHasher13, SipHasher24};
use smallvec::SmallVec;

use super::encoding::{HEADER_BYTES, Kind, PAIR, TAGGED_PART, reveal};

/// The key that a [`Charge`](crate::Charge) is made to: an account, an API key, an address.
///
/// A key has 56 bytes and never allocates. It keeps up to 46 bytes as they
/// are. A longer text (a bearer token, a hostile header), or one that begins with a zero byte, is
/// replaced by a 128-bit digest. So every input makes a key of bounded size, and different inputs make
/// different keys.
///
/// The same text makes the same key, wherever it comes from: `alice` from a header spends for `alice`
/// from a login. A text is kept as it is written, so `Alice` and `alice ` are different keys: see
/// [`from_name`](Self::from_name). A key is also made from
///
/// - bytes: `&[u8]`, `[u8; N]`, [`Vec<u8>`], [`Bytes`](bytes::Bytes). The bytes of a text make the key of the text;
/// - any integer. `42_i32` and `42_u64` make the same key, so a column of the database can change its type;
/// - an [`IpAddr`](std::net::IpAddr), as [`by::peer_ip`](crate::by::peer_ip) charges it: all IPv6
///   addresses with the same first 64 bits make the same key;
/// - a `Uuid`, with the feature `uuid`;
/// - a tuple of two to four of these, such as `(tenant, user)`.
///
/// Keys of integers, of addresses, of UUIDs and of tuples differ from each other and from the key of any text.
///
/// [`Debug`](fmt::Debug) prints a short digest and never the bytes. The digest has no secret, so that the log lines
/// of all instances agree. A reader of the logs can therefore test a guess, and can try all IPv4
/// addresses. [`display_revealed`](Self::display_revealed) prints the key in the clear.
///
/// ```
/// use plimsoll::Key;
///
/// let key = Key::from("alice@example.com");
/// assert!(!format!("{key:?}").contains("alice"));
/// assert_eq!(key.reveal(), b"alice@example.com");
/// assert_eq!(Key::from(("acme", 42_i64)), Key::from(("acme", 42_u32)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The bytes beyond the length are zero.
    bytes: [u8; Self::MAX_PLAIN_BYTES],
    len: u8,
    kind: Kind,
    tag: Option<NonZeroU64>,
}

/// The length of the longest text of four keys.
const MAX_PARTS_BYTES: usize = PAIR.len() + 4 * (HEADER_BYTES + Key::MAX_PLAIN_BYTES + 8);

/// An encoded key. Different keys have different encodings.
pub(crate) type Encoded = SmallVec<[u8; HEADER_BYTES + Key::MAX_PLAIN_BYTES + 8]>;

/// The number by which the digest of a tagged key differs. No [`Kind`] has it.
const TAGGED: u64 = 0xff;

impl Key {
    /// The length in bytes of the longest text that is kept as it is.
    pub(crate) const MAX_PLAIN_BYTES: usize = 46;

    /// The key that all unidentified clients share.
    pub const ANONYMOUS: Self = Self::marker(Kind::Anonymous);

    /// Creates a key from bytes of any length. It is inlined, because other crates create a key and a charge for each
    /// request (`benches/check.rs`).
    #[inline]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        match bytes {
            // Keys that are not made from bytes begin with a zero byte. A text must not equal one.
            [0, ..] => Self::of(Kind::Digest, &fixed_digest(bytes)),
            _ if bytes.len() <= Self::MAX_PLAIN_BYTES => Self::of(Kind::Plain, bytes),
            _ => Self::of(Kind::Digest, &fixed_digest(bytes)),
        }
    }

    /// Creates a key from the name of an account. Spellings that differ only in case or in surrounding
    /// white space make the same key.
    ///
    /// - White space and control characters at both ends are removed.
    /// - The case of each character is ignored, by the tables of Unicode that the standard library
    ///   has: `DAVE` is `dave`, and `Straße` is `STRASSE`.
    ///
    /// Other spellings stay different keys. This does not compose characters (`é` as one character or
    /// as two), remove characters without width, map letters that look alike in two scripts, or
    /// know the aliases of a mail provider (`d.ave+1@example.com`). If the application treats such
    /// spellings as one account, an attacker has a budget for each of them. So charge the identifier
    /// that the account has in the database, where it is known, or else normalize the name as the
    /// login does and pass the result.
    ///
    /// ```
    /// use plimsoll::Key;
    ///
    /// assert_eq!(Key::from_name(" Dave\n"), Key::from_name("dave"));
    /// assert_ne!(Key::from("Dave"), Key::from("dave"));
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let name = name.trim_matches(|it: char| it.is_whitespace() || it.is_control());
        // Lower case first, because the upper case of `ẞ` is `ẞ`, and the upper case of `ß` is `SS`.
        let lower = name.chars().flat_map(char::to_lowercase);
        let folded: String =
            lower.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
        Self::new(folded.as_bytes())
    }

    /// Returns the same key with a co-location tag, such as a tenant.
    ///
    /// A clustered store keeps all keys with the same tag together, and can then decide charges to
    /// several of them in one atomic step. The tag is a part of the key.
    #[must_use]
    pub fn tagged(mut self, tag: impl AsRef<[u8]>) -> Self {
        let [low, high] = words(&fixed_digest(tag.as_ref()));
        self.tag = Some(NonZeroU64::new(low ^ high.rotate_left(32)).unwrap_or(NonZeroU64::MIN));
        self
    }

    /// Returns the bytes of this key in the clear. Do not log them if they are secret.
    ///
    /// For a text of more than 46 bytes this is the digest.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the key in a form that people can read, for a page of an administrator or a support
    /// tool. Do not log it if keys are secret: [`Debug`](fmt::Debug) redacts them.
    ///
    /// | key of | printed as |
    /// |---|---|
    /// | a text | the text, in quotes if it would look like another key: `"42"`, `"a, b"`, `"\n"` |
    /// | bytes that are not UTF-8 | `bytes:fffe` |
    /// | a number, an address, a UUID | `-42`, `192.0.2.1`, `67e55044-10b1-426f-9247-bb680e5fe0c8` |
    /// | a tuple | `(alice, 192.0.2.1)` |
    /// | a long text, or several long parts | `digest:4bf1..`, because the text is not kept |
    /// | an unknown client | `anonymous` |
    ///
    /// A [tag](Self::tagged) is not printed. Without tags, different keys look different, except for a UUID
    /// and its text. An attacker may have written the text, so a page must escape it.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use plimsoll::Key;
    ///
    /// let key = Key::from(("alice", 42, Ipv4Addr::LOCALHOST));
    /// assert_eq!(key.display_revealed().to_string(), "(alice, 42, 127.0.0.1)");
    /// assert!(!format!("{key:?}").contains("alice"));
    /// ```
    #[must_use]
    pub fn display_revealed(&self) -> impl fmt::Display + fmt::Debug + use<'_> {
        RevealedKey(self)
    }

    /// Returns the co-location tag.
    #[cfg(feature = "redis")]
    pub(crate) fn tag(&self) -> Option<u64> {
        self.tag.map(NonZeroU64::get)
    }

    /// Returns the bytes, unless a digest or a marker stands for them.
    #[cfg(feature = "redis")]
    pub(crate) fn plain(&self) -> Option<&[u8]> {
        (self.kind == Kind::Plain).then(|| self.reveal())
    }

    /// Returns the encoding of this key without its tag.
    fn encoded_without_tag(&self) -> Encoded {
        let mut encoded = Encoded::from_slice(&[self.kind as u8, self.len]);
        encoded.extend_from_slice(self.reveal());
        encoded
    }

    /// Returns the encoding of this key.
    pub(crate) fn encoded(&self) -> Encoded {
        let mut encoded = self.encoded_without_tag();
        if let Some(tag) = self.tag {
            encoded.extend_from_slice(&tag.get().to_le_bytes());
        }
        encoded
    }

    /// Returns a digest for the tables of this process. The kind is mixed into the hasher's key, so
    /// that a key without a tag is hashed without encoding it first.
    pub(crate) fn digest_keyed(&self, [low, high]: [u64; 2]) -> [u64; 2] {
        let encoded;
        let (kind, bytes) = match self.tag {
            None => (self.kind as u64, self.reveal()),
            Some(_) => {
                encoded = self.encoded();
                (TAGGED, &*encoded)
            }
        };
        let digest = SipHasher13::new_with_keys(low, high ^ kind << 56).hash(bytes);
        [digest.h1, digest.h2]
    }

    /// Returns the key of several keys. The encoding of each part states its length, so different
    /// parts never make the same text.
    pub(super) fn of_parts(parts: &[Self]) -> Self {
        let mut text = SmallVec::<[u8; MAX_PARTS_BYTES]>::from(&PAIR[..]);
        for part in parts {
            let at = text.len();
            text.extend_from_slice(&part.encoded_without_tag());
            if let Some(tag) = part.tag {
                text[at] |= TAGGED_PART;
                text.extend_from_slice(&tag.get().to_le_bytes());
            }
        }
        let key = if text.len() <= Self::MAX_PLAIN_BYTES {
            Self::of(Kind::Plain, &text)
        } else {
            Self::of(Kind::Pair, &fixed_digest(&text))
        };
        Self { tag: parts.iter().find_map(|part| part.tag), ..key }
    }

    /// Returns a digest under a secret that the processes of a service share. It may be shown to
    /// clients.
    pub(crate) fn digest_with(&self, secret: [u64; 2]) -> [u8; 8] {
        let hasher = SipHasher24::new_with_keys(secret[0], secret[1]);
        let digest = hasher.hash(&self.encoded());
        digest.h1.to_le_bytes()
    }

    const fn marker(kind: Kind) -> Self {
        Self { bytes: [0; Self::MAX_PLAIN_BYTES], len: 0, kind, tag: None }
    }

    #[inline]
    pub(super) fn of(kind: Kind, bytes: &[u8]) -> Self {
        let mut key = Self::marker(kind);
        key.len = bytes.len() as u8;
        // Word by word, because the key is moved and hashed at once: a processor stalls when it reads bytes in
        // larger pieces than they were just written in (`benches/check.rs`).
        for (index, chunk) in key.bytes.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&word(bytes, 8 * index).to_le_bytes()[..chunk.len()]);
        }
        key
    }
}

/// Returns the eight bytes from `start` on as a number. Missing bytes are zero.
#[inline]
fn word(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    if let Some(word) = rest.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    match bytes.last_chunk() {
        Some(_) if rest.is_empty() => 0,
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.reveal());
        state.write_u64(self.tag.map_or(0, NonZeroU64::get) ^ self.kind as u64);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANONYMOUS {
            return f.write_str("Key(anonymous)");
        }
        let [low, _] = words(&fixed_digest(self.reveal()));
        write!(f, "Key(#{:08x})", low as u32)
    }
}

/// The readable form of a [`Key`]. [`Key::display_revealed`] creates it.
struct RevealedKey<'k>(&'k Key);

impl fmt::Display for RevealedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        reveal(self.0.kind as u8, self.0.reveal(), f)
    }
}

/// Prints the key, like [`Display`](fmt::Display).
impl fmt::Debug for RevealedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_byte_of_every_length() {
        let bytes: Vec<u8> = (1..=Key::MAX_PLAIN_BYTES as u8).collect();
        for len in 0..=bytes.len() {
            let key = Key::new(&bytes[..len]);
            assert_eq!(key.reveal(), &bytes[..len]);
            assert_eq!(key.bytes[len..], [0; Key::MAX_PLAIN_BYTES][len..]);
        }
    }

    #[test]
    fn digests_tell_kinds_and_tags_apart() {
        let plain = Key::from("tenant");
        let [low, high] = words(&fixed_digest(b"tenant"));
        let tag = low ^ high.rotate_left(32);
        let spelled = [plain.encoded_without_tag().as_slice(), &tag.to_le_bytes()].concat();
        let kinds = [Key::from(""), Key::ANONYMOUS, Key::from("a").tagged("b")];
        let empty = kinds.map(|key| key.digest_keyed([1, 2]));
        let tagged = [plain, plain.tagged("tenant"), Key::new(&spelled)];
        let tagged = tagged.map(|key| key.digest_keyed([1, 2]));
        for digests in [empty, tagged] {
            let [a, b, c] = digests;
            assert!(a != b && b != c && a != c, "{digests:?}");
        }
    }
}

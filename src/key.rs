//! Who is charged.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
    num::NonZeroU64,
};

use http::HeaderValue;
use siphasher::sip128::{SipHasher13, SipHasher24};
use smallvec::SmallVec;

/// Who is charged: an account, an API key, an address.
///
/// A key is 56 bytes and never allocates. Up to [`MAX_PLAIN`](Self::MAX_PLAIN) bytes are kept as
/// they are; what is longer (a bearer token, a hostile header) or begins with a zero byte is
/// replaced by a 128-bit digest, so any input makes a key of bounded size and different inputs make
/// different keys.
///
/// The same text is the same key, wherever it comes from: `alice` of a header spends for `alice` of
/// a login. Addresses, numbers and pairs differ from any text.
///
/// `Debug` shows a short digest, never the bytes. It is made without a secret, so that instances
/// agree: whoever reads it can test a guess, and there are few enough IPv4 addresses to test all.
///
/// ```
/// use tollgate::Key;
///
/// let key = Key::from("alice@example.com");
/// assert!(!format!("{key:?}").contains("alice"));
/// assert_eq!(key.reveal(), b"alice@example.com");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Zero beyond the length.
    bytes: [u8; Self::MAX_PLAIN],
    len: u8,
    kind: Kind,
    tag: Option<NonZeroU64>,
}

/// The kind and the length, which a run begins with.
const HEAD: usize = 2;
type Run = SmallVec<[u8; HEAD + Key::MAX_PLAIN + 8]>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Kind {
    Plain,
    Digest,
    /// The digest of two keys.
    Pair,
    Anonymous,
    Overflow,
}

/// Differs from every [`Kind`].
const TAGGED: u64 = 0xff;

impl Key {
    /// The longest text, in bytes, that is kept as it is.
    pub const MAX_PLAIN: usize = 46;

    /// The one key that everybody shares whom no extractor could identify.
    pub const ANONYMOUS: Self = Self::marker(Kind::Anonymous);

    /// The key that newcomers to a full store share.
    pub(crate) const OVERFLOW: Self = Self::marker(Kind::Overflow);

    /// A key from any bytes, of any length.
    #[must_use]
    #[inline(always)]
    pub fn new(bytes: &[u8]) -> Self {
        match bytes {
            // So begin the keys that are not made from bytes: nobody gets there by spelling one.
            [0, ..] => Self::of(Kind::Digest, &digest(bytes)),
            _ if bytes.len() <= Self::MAX_PLAIN => Self::of(Kind::Plain, bytes),
            _ => Self::of(Kind::Digest, &digest(bytes)),
        }
    }

    /// The same key, kept together with all others of this tag (a tenant): a clustered store can
    /// then decide charges of several keys in one atomic step. The tag is part of the key.
    #[must_use]
    pub fn tagged(mut self, tag: impl AsRef<[u8]>) -> Self {
        let [low, high] = words(&digest(tag.as_ref()));
        self.tag = Some(NonZeroU64::new(low ^ high.rotate_left(32)).unwrap_or(NonZeroU64::MIN));
        self
    }

    /// The bytes behind this key, in the clear: mind where they go. A key made from more than
    /// [`MAX_PLAIN`](Self::MAX_PLAIN) bytes shows its digest.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The co-location tag.
    #[cfg(feature = "redis")]
    pub(crate) fn tag(&self) -> Option<u64> {
        self.tag.map(NonZeroU64::get)
    }

    /// The bytes, unless a digest or a marker stands for them.
    #[cfg(feature = "redis")]
    pub(crate) fn plain(&self) -> Option<&[u8]> {
        (self.kind == Kind::Plain).then(|| self.reveal())
    }

    /// What tells this key from others, but for the tag, as one run of bytes.
    fn run(&self) -> Run {
        let mut run = Run::from_slice(&[self.kind as u8, self.len]);
        run.extend_from_slice(self.reveal());
        run
    }

    /// Hands over what tells this key from others, as one run of bytes.
    pub(crate) fn with_run<T>(&self, use_run: impl FnOnce(&[u8]) -> T) -> T {
        let mut run = self.run();
        if let Some(tag) = self.tag {
            run.extend_from_slice(&tag.get().to_le_bytes());
        }
        use_run(&run)
    }

    /// A digest for the tables of this process. What clients cannot choose goes into the hasher's
    /// own key, so that a key without a tag is hashed where it lies.
    #[inline]
    pub(crate) fn digest_keyed(&self, [low, high]: [u64; 2]) -> [u64; 2] {
        let hasher = |kind: u64| SipHasher13::new_with_keys(low, high ^ kind << 56);
        let digest = match self.tag {
            None => hasher(self.kind as u64).hash(self.reveal()),
            Some(_) => self.with_run(|run| hasher(TAGGED).hash(run)),
        };
        [digest.h1, digest.h2]
    }

    /// One key out of two, which differs from either and from every other pair. It keeps the first
    /// tag there is.
    #[must_use]
    pub fn paired(&self, other: &Self) -> Self {
        let mut text = SmallVec::<[u8; 2 * (Self::MAX_PLAIN + HEAD) + 2]>::from_slice(b"\0p");
        text.extend_from_slice(&self.run());
        text.extend_from_slice(&other.run());
        let pair = match text.len() <= Self::MAX_PLAIN {
            true => Self::of(Kind::Plain, &text),
            false => Self::of(Kind::Pair, &digest(&text)),
        };
        Self { tag: self.tag.or(other.tag), ..pair }
    }

    /// A digest under a secret, to show to clients and to compare between processes.
    pub(crate) fn digest_with(&self, secret: [u64; 2]) -> [u8; 8] {
        let hasher = SipHasher24::new_with_keys(secret[0], secret[1]);
        let digest = self.with_run(|run| hasher.hash(run));
        digest.h1.to_le_bytes()
    }

    const fn marker(kind: Kind) -> Self {
        Self { bytes: [0; Self::MAX_PLAIN], len: 0, kind, tag: None }
    }

    #[inline(always)]
    fn of(kind: Kind, bytes: &[u8]) -> Self {
        let mut key = Self::marker(kind);
        key.len = bytes.len() as u8;
        // Word by word, as they are soon hashed: what is read in other pieces than it was just
        // written in has to wait for the cache.
        for (at, place) in key.bytes.chunks_mut(8).enumerate() {
            place.copy_from_slice(&word(bytes, 8 * at).to_le_bytes()[..place.len()]);
        }
        key
    }
}

/// Eight of the bytes, from `at` on; zeros where there are no more.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
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
        self.with_run(|run| state.write(run));
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANONYMOUS {
            return f.write_str("Key(anonymous)");
        }
        let [low, _] = words(&digest(self.reveal()));
        write!(f, "Key(#{:08x})", low as u32)
    }
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&String> for Key {
    #[inline]
    fn from(text: &String) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<String> for Key {
    #[inline]
    fn from(text: String) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&HeaderValue> for Key {
    #[inline]
    fn from(value: &HeaderValue) -> Self {
        Self::new(value.as_bytes())
    }
}

impl From<u64> for Key {
    /// The key differs from that of any text.
    #[inline]
    fn from(number: u64) -> Self {
        let mut text = *b"\0n________";
        text[2..].copy_from_slice(&number.to_be_bytes());
        Self::of(Kind::Plain, &text)
    }
}

impl From<IpAddr> for Key {
    /// The address in its canonical form: an IPv4-mapped IPv6 address is IPv4. The key differs from
    /// that of any text.
    fn from(address: IpAddr) -> Self {
        let mut text = *b"\0a________________";
        let octets = &mut text[2..];
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                octets[..4].copy_from_slice(&v4.octets());
                Self::of(Kind::Plain, &text[..6])
            }
            IpAddr::V6(v6) => {
                octets.copy_from_slice(&v6.octets());
                Self::of(Kind::Plain, &text)
            }
        }
    }
}

impl From<&Key> for Key {
    #[inline]
    fn from(key: &Key) -> Self {
        *key
    }
}

/// What an extractor says of a request: who is charged, if anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// This key is charged.
    Known(Key),
    /// Nobody could be identified: [`Key::ANONYMOUS`] is charged, which all such requests share.
    Unknown,
    /// Nothing is charged.
    Exempt,
}

impl Identity {
    /// Who is charged; `None` if nobody is.
    #[must_use]
    pub fn key(self) -> Option<Key> {
        match self {
            Self::Known(key) => Some(key),
            Self::Unknown => Some(Key::ANONYMOUS),
            Self::Exempt => None,
        }
    }

    /// This identity if it is not [`Unknown`](Self::Unknown), else the other.
    #[must_use]
    pub fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Unknown => other(),
            known => known,
        }
    }
}

impl<K: Into<Key>> From<K> for Identity {
    #[inline]
    fn from(key: K) -> Self {
        Self::Known(key.into())
    }
}

impl<I: Into<Identity>> From<Option<I>> for Identity {
    /// `None` is [`Identity::Unknown`].
    #[inline]
    fn from(identity: Option<I>) -> Self {
        identity.map_or(Self::Unknown, Into::into)
    }
}

/// Under a fixed secret: it folds what is long, and makes log lines comparable between processes.
fn digest(bytes: &[u8]) -> [u8; 16] {
    SipHasher24::new_with_keys(0x746f_6c6c, 0x6761_7465).hash(bytes).as_bytes()
}

fn words(digest: &[u8; 16]) -> [u64; 2] {
    let (low, high) = digest.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_every_byte_of_every_length() {
        let bytes: Vec<u8> = (1..=Key::MAX_PLAIN as u8).collect();
        for len in 0..=bytes.len() {
            let key = Key::new(&bytes[..len]);
            assert_eq!(key.reveal(), &bytes[..len]);
            assert_eq!(key.bytes[len..], [0; Key::MAX_PLAIN][len..]);
        }
    }

    #[test]
    fn digests_tell_kinds_and_tags_apart() {
        let plain = Key::from("tenant");
        let [low, high] = words(&digest(b"tenant"));
        let tag = low ^ high.rotate_left(32);
        let spelled = [plain.run().as_slice(), &tag.to_le_bytes()].concat();
        let empty =
            [Key::from(""), Key::ANONYMOUS, Key::OVERFLOW].map(|key| key.digest_keyed([1, 2]));
        let tagged = [plain, plain.tagged("tenant"), Key::new(&spelled)];
        let tagged = tagged.map(|key| key.digest_keyed([1, 2]));
        for digests in [empty, tagged] {
            let [a, b, c] = digests;
            assert!(a != b && b != c && a != c, "{digests:?}");
        }
    }
}

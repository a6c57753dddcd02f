//! Who is charged.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
};

use http::HeaderValue;
use siphasher::sip128::SipHasher24;
use smallvec::SmallVec;

/// Who is charged: an account, an API key, an address.
///
/// A key is 64 bytes and never allocates. Up to [`MAX_PLAIN`](Self::MAX_PLAIN) bytes are kept as
/// they are; what is longer (a bearer token, a hostile header) is replaced by a 128-bit digest, so
/// any input makes a key of bounded size and different inputs make different keys.
///
/// `Debug` shows a short digest, never the bytes.
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
    kind: Kind,
    len: u8,
    bytes: [u8; Self::MAX_PLAIN],
    tag: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Kind {
    Plain,
    Digest,
    Anonymous,
    Overflow,
}

impl Key {
    /// The longest key, in bytes, that is kept as it is.
    pub const MAX_PLAIN: usize = 46;

    /// The one key that everybody shares whom no extractor could identify.
    pub const ANONYMOUS: Self = Self::marker(Kind::Anonymous);

    /// The key that newcomers to a full store share.
    pub(crate) const OVERFLOW: Self = Self::marker(Kind::Overflow);

    /// A key from any bytes, of any length.
    #[must_use]
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        let mut key = Self::marker(Kind::Plain);
        if let Some(plain) = key.bytes.get_mut(..bytes.len()) {
            plain.copy_from_slice(bytes);
            key.len = bytes.len() as u8;
        } else {
            key.kind = Kind::Digest;
            key.len = 16;
            key.bytes[..16].copy_from_slice(&digest(bytes));
        }
        key
    }

    /// The same key, kept together with all others of this tag (a tenant): a clustered store can
    /// then decide charges of several keys in one atomic step. The tag is part of the key.
    #[must_use]
    pub fn tagged(mut self, tag: impl AsRef<[u8]>) -> Self {
        let [low, high] = words(&digest(tag.as_ref()));
        self.tag = Some(low ^ high.rotate_left(32));
        self
    }

    /// The bytes behind this key, in the clear: mind where they go. A key made from more than
    /// [`MAX_PLAIN`](Self::MAX_PLAIN) bytes shows its digest.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The longest [`run`](Self::run).
    pub(crate) const MAX_RUN: usize = 2 + Self::MAX_PLAIN + 8;

    /// What tells this key from others as one run of bytes, and how many of them count.
    #[inline]
    pub(crate) fn run(&self) -> ([u8; Self::MAX_RUN], usize) {
        let mut run = [0; Self::MAX_RUN];
        let mut len = 2 + usize::from(self.len);
        // All bytes: a copy of a known length needs no call.
        run[2..2 + Self::MAX_PLAIN].copy_from_slice(&self.bytes);
        run[0] = self.kind as u8;
        run[1] = self.len;
        if let Some(tag) = self.tag {
            run[len..len + 8].copy_from_slice(&tag.to_le_bytes());
            len += 8;
        }
        (run, len)
    }

    /// One key out of two, which differs from either and from every other pair. It keeps the first
    /// tag there is.
    #[must_use]
    pub fn paired(&self, other: &Self) -> Self {
        let mut text = SmallVec::<[u8; 2 * (Self::MAX_PLAIN + 2) + 2]>::from_slice(b"\0p");
        for key in [self, other] {
            text.extend_from_slice(&[key.kind as u8, key.len]);
            text.extend_from_slice(key.reveal());
        }
        Self { tag: self.tag.or(other.tag), ..Self::new(&text) }
    }

    /// A digest under a secret, to show to clients and to compare between processes.
    pub(crate) fn digest_with(&self, secret: [u64; 2]) -> [u8; 8] {
        let (run, len) = self.run();
        let digest = SipHasher24::new_with_keys(secret[0], secret[1]).hash(&run[..len]);
        digest.h1.to_le_bytes()
    }

    /// The co-location tag.
    #[cfg(feature = "redis")]
    pub(crate) fn tag(&self) -> Option<u64> {
        self.tag
    }

    /// The bytes, unless a digest or a marker stands for them.
    #[cfg(feature = "redis")]
    pub(crate) fn plain(&self) -> Option<&[u8]> {
        (self.kind == Kind::Plain).then(|| self.reveal())
    }

    const fn marker(kind: Kind) -> Self {
        Self { kind, len: 0, bytes: [0; Self::MAX_PLAIN], tag: None }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (run, len) = self.run();
        state.write(&run[..len]);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Anonymous => f.write_str("Key(anonymous)"),
            Kind::Overflow => f.write_str("Key(overflow)"),
            Kind::Plain | Kind::Digest => {
                let [low, _] = words(&digest(self.reveal()));
                write!(f, "Key(#{:08x})", low as u32)
            }
        }
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
    #[inline]
    fn from(number: u64) -> Self {
        Self::new(&number.to_be_bytes())
    }
}

impl From<IpAddr> for Key {
    /// The address in its canonical form: an IPv4-mapped IPv6 address is IPv4. The key differs from
    /// that of any header with the same bytes.
    fn from(address: IpAddr) -> Self {
        // No header value has a zero byte: nobody can spend for an address by spelling it.
        let mut text = SmallVec::<[u8; 24]>::from_slice(b"\0a");
        match address.to_canonical() {
            IpAddr::V4(v4) => text.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => text.extend_from_slice(&v6.octets()),
        }
        Self::new(&text)
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

//! The names of keys in the database: `{prefix}:{<hash or tag>}:<policy>:<algorithm and layout>`.
//!
//! In a cluster the part in braces decides the slot. So the standings of a key under all policies share a slot,
//! and so do all keys with the same [tag](Key::tagged).

use std::{borrow::Cow, fmt};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use siphasher::sip128::SipHasher24;
use smallvec::SmallVec;

use super::config::RedisConfig;
use crate::{key::Key, policy::Charge};

/// The name of a key in the database. Names under policies with up to 38 letters need no
/// allocation.
pub(super) type KeyName = SmallVec<[u8; 72]>;

/// The naming of keys, as configured by [`RedisConfig`].
#[derive(Clone)]
pub(super) struct KeyNames {
    prefix: Box<str>,
    secret: (u64, u64),
    is_plain: bool,
}

impl KeyNames {
    pub(super) fn new(config: &RedisConfig) -> Self {
        let RedisConfig { prefix, secret, plain_keys, .. } = config;
        Self { prefix: prefix.as_str().into(), secret: *secret, is_plain: *plain_keys }
    }

    /// Returns the name of the database key that holds the standing of a charge.
    pub(super) fn name(&self, charge: &Charge<'_>) -> KeyName {
        let mut name = KeyName::new();
        name.extend_from_slice(self.prefix.as_bytes());
        name.extend_from_slice(b":{");
        if let Some(tag) = charge.key().tag() {
            push_base64(&mut name, &tag.to_be_bytes());
            name.push(b'}');
            self.push_key(&mut name, charge.key());
        } else {
            self.push_key(&mut name, charge.key());
            name.push(b'}');
        }
        name.push(b':');
        name.extend_from_slice(charge.policy().name().as_bytes());
        name.push(b':');
        name.extend_from_slice(charge.quota().algorithm().layout().as_bytes());
        name
    }

    fn push_key(&self, name: &mut KeyName, key: &Key) {
        match key.plain() {
            Some(bytes) if self.is_plain => {
                name.push(b'=');
                push_escaped(name, bytes);
            }
            _ => {
                let hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
                push_base64(name, &hasher.hash(&key.encoded()).as_bytes());
            }
        }
    }
}

impl fmt::Debug for KeyNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyNames").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Appends the bytes in the URL-safe alphabet of base64 (RFC 4648, section 5), without padding.
fn push_base64(text: &mut KeyName, bytes: &[u8]) {
    // A digest needs 22 characters.
    let mut characters = [0; 24];
    match URL_SAFE_NO_PAD.encode_slice(bytes, &mut characters) {
        Ok(length) => text.extend_from_slice(&characters[..length]),
        Err(_) => text.extend_from_slice(URL_SAFE_NO_PAD.encode(bytes).as_bytes()),
    }
}

/// Appends the bytes. Bytes that are not printable, braces and `%` are written as `%XX`.
fn push_escaped(text: &mut KeyName, bytes: &[u8]) {
    const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'%') {
            text.push(byte);
        } else {
            let digit = |bits: u8| HEX_DIGITS[usize::from(bits & 15)];
            text.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
        }
    }
}

/// Returns the name of the policy in the name of a key.
pub(super) fn policy(name: &[u8]) -> Cow<'_, str> {
    let policy = name.rsplit(|byte| *byte == b':').nth(1).unwrap_or_default();
    String::from_utf8_lossy(policy)
}

/// Returns the cluster slot of a key: the CRC-16 (XMODEM) of the part in braces, modulo 16384, as
/// the Redis Cluster specification defines it. Every name here has braces.
pub(super) fn slot(name: &[u8]) -> u16 {
    let tag = name.split(|byte| matches!(byte, b'{' | b'}')).nth(1).unwrap_or(name);
    let crc = tag.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_cluster_specification() {
        assert_eq!(slot(b"p:{123456789}:x"), 0x31c3);
        assert_eq!(slot(b"p:{foo}:x"), 12_182);
    }

    #[test]
    fn a_name_has_its_policy() {
        assert_eq!(policy(b"p:{=a:b}:per-ip:l2"), "per-ip");
        assert_eq!(policy(b"p:{tag}=x:y:sign-ups.day:t2"), "sign-ups.day");
    }

    #[test]
    fn base64_follows_the_specification() {
        let text = |bytes: &[u8]| {
            let mut text = KeyName::new();
            push_base64(&mut text, bytes);
            String::from_utf8(text.into_vec()).expect("ascii")
        };
        assert_eq!(text(b"foobar"), "Zm9vYmFy");
        assert_eq!(text(b"fooba"), "Zm9vYmE");
        assert_eq!(text(b"foob"), "Zm9vYg");
        assert_eq!(text(&[0xff; 16]).len(), 22);
    }
}

//! What the keys in the database are called:
//! `{prefix}:{<hash or tag>}:<policy>:<algorithm and layout>`.
//!
//! What stands in braces decides the slot in a cluster, so the standings of one key under all
//! policies share a slot, and so do those of all keys with one tag.

use std::fmt;

use siphasher::sip128::SipHasher24;

use super::config::RedisConfig;
use crate::{key::Key, policy::Charge};

pub(super) struct Naming {
    prefix: Box<str>,
    secret: (u64, u64),
    plain: bool,
}

impl fmt::Debug for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Naming").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Naming {
    pub(super) fn new(config: &RedisConfig) -> Self {
        let RedisConfig { prefix, secret, plain_keys, .. } = config;
        Self { prefix: prefix.as_str().into(), secret: *secret, plain: *plain_keys }
    }

    pub(super) fn name(&self, charge: &Charge<'_>) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.prefix.len() + charge.policy().name().len() + 64);
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

    fn push_key(&self, name: &mut Vec<u8>, key: &Key) {
        match key.plain() {
            Some(bytes) if self.plain => {
                name.push(b'=');
                push_escaped(name, bytes);
            }
            _ => {
                let hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
                push_base64(name, &key.with_run(|run| hasher.hash(run)).as_bytes());
            }
        }
    }
}

/// The URL-safe alphabet, without padding.
fn push_base64(text: &mut Vec<u8>, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for position in 0..=chunk.len() {
            text.push(ALPHABET[(bits >> (18 - 6 * position)) as usize & 63]);
        }
    }
}

fn push_escaped(text: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        if byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'%') {
            text.push(byte);
        } else {
            text.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

/// The slot of a key in a cluster: CRC-16 (XMODEM) of what stands in braces, modulo 16384, as the
/// Redis Cluster specification says. Every name here has braces.
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
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot(b"p:{123456789}:x"), 0x31c3);
        assert_eq!(slot(b"p:{foo}:x"), 12_182);
    }

    #[test]
    fn base64_is_that_of_the_specification() {
        let text = |bytes: &[u8]| {
            let mut text = Vec::new();
            push_base64(&mut text, bytes);
            String::from_utf8(text).expect("ascii")
        };
        assert_eq!(text(b"foobar"), "Zm9vYmFy");
        assert_eq!(text(b"fooba"), "Zm9vYmE");
        assert_eq!(text(b"foob"), "Zm9vYg");
        assert_eq!(text(&[0xff; 16]).len(), 22);
    }
}

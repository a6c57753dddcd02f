//! Lists of address ranges such as `10.0.0.0/8`.

use std::net::IpAddr;

use crate::error::Error;

/// A list of address ranges. IPv4 and IPv6 are kept apart, so that a lookup is a row of comparisons.
#[derive(Debug, Clone, Default)]
pub(super) struct Cidrs {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Cidrs {
    pub(super) fn parse(ranges: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let mut cidrs = Self::default();
        for range in ranges {
            let range = range.as_ref();
            cidrs.add(range).ok_or_else(|| {
                let allowed = "an address, or the first address of a range and a prefix length: \
                               10.0.0.0/8, fd00::/8";
                Error::invalid("trusted proxy", range, allowed)
            })?;
        }
        Ok(cidrs)
    }

    /// Returns whether an address in canonical form is in one of the ranges.
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => {
                let bits = v4.to_bits();
                // There is no early exit, because the branches cost more than the comparisons.
                self.v4
                    .iter()
                    .fold(false, |found, (network, mask)| found | (bits & mask == *network))
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                self.v6.iter().any(|(network, mask)| bits & mask == *network)
            }
        }
    }

    fn add(&mut self, range: &str) -> Option<()> {
        let (address, prefix) = match range.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix_length(prefix)?)),
            None => (range, None),
        };
        match address.parse().ok()? {
            IpAddr::V4(v4) => self.add_v4(v4.to_bits(), prefix.unwrap_or(32)),
            // A range of IPv4-mapped addresses is a range of IPv4, which is their canonical form.
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() && prefix.unwrap_or(128) >= 96 => {
                self.add_v4(v6.to_bits() as u32, prefix.unwrap_or(128) - 96)
            }
            IpAddr::V6(v6) => self.add_v6(v6.to_bits(), prefix.unwrap_or(128)),
        }
    }

    /// Adds a range, or returns `None` if the address has bits outside of the prefix: one of the two
    /// is a mistake, and it cannot be known which.
    fn add_v4(&mut self, network: u32, prefix: u32) -> Option<()> {
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(prefix)?).unwrap_or(0);
        (network & mask == network).then(|| self.v4.push((network, mask)))
    }

    fn add_v6(&mut self, network: u128, prefix: u32) -> Option<()> {
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(prefix)?).unwrap_or(0);
        (network & mask == network).then(|| self.v6.push((network, mask)))
    }
}

/// Parses digits only: `parse` alone would accept a plus sign.
fn prefix_length(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

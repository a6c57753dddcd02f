//! Lists of address ranges such as `10.0.0.0/8`.

use std::net::IpAddr;

use crate::error::Error;

/// A list of address ranges, as pairs of network and mask. IPv4 and IPv6 ranges are separate, so
/// that a lookup compares integers only.
#[derive(Debug, Clone, Default)]
pub(super) struct Cidrs {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Cidrs {
    /// Parses a list of ranges.
    ///
    /// # Errors
    ///
    /// Returns an error if an item is neither an address nor the first address of a range.
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
                // All ranges are compared, because branches cost more than the comparisons they
                // save.
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
            // The canonical form of IPv4-mapped addresses is IPv4, so their range is an IPv4 range.
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() && prefix.unwrap_or(128) >= 96 => {
                self.add_v4(v6.to_bits() as u32, prefix.unwrap_or(128) - 96)
            }
            IpAddr::V6(v6) => self.add_v6(v6.to_bits(), prefix.unwrap_or(128)),
        }
    }

    /// Adds a range. Returns `None` if the address has bits after the prefix, because then the
    /// address or the prefix is a mistake.
    fn add_v4(&mut self, network: u32, prefix: u32) -> Option<()> {
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(prefix)?).unwrap_or(0);
        (network & mask == network).then(|| self.v4.push((network, mask)))
    }

    fn add_v6(&mut self, network: u128, prefix: u32) -> Option<()> {
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(prefix)?).unwrap_or(0);
        (network & mask == network).then(|| self.v6.push((network, mask)))
    }
}

/// Parses a prefix length of digits only. `parse` alone would accept a plus sign.
fn prefix_length(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

//! Blocks of addresses, such as `10.0.0.0/8`, for saying which peers are trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address, or all addresses that begin like it.
///
/// An IPv4 address inside an IPv6 one counts as what it is.
///
/// ```
/// let block: pontoon::config::AddressBlock = "10.0.0.0/8".parse().unwrap();
/// assert!(block.contains("10.1.2.3".parse().unwrap()));
/// assert!(block.contains("::ffff:10.1.2.3".parse().unwrap()));
/// assert!(!block.contains("11.1.2.3".parse().unwrap()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    first: IpAddr,
    /// How many bits of it all addresses share.
    bits: u32,
}

/// A text that is no address and no block of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a block of addresses such as 10.0.0.0/8")]
pub struct BadAddressBlock;

impl AddressBlock {
    /// Whether `address` is one of the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differ = u32::from(first) ^ u32::from(address);
                differ.leading_zeros() >= self.bits
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differ = u128::from(first) ^ u128::from(address);
                differ.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }

    /// True if an address is in it that only this machine has.
    pub fn has_loopback(&self) -> bool {
        let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        self.first.is_loopback() || own.iter().any(|own| self.contains(*own))
    }

    /// True if every address of its kind is in it.
    pub fn is_everything(&self) -> bool {
        self.bits == 0
    }
}

impl FromStr for AddressBlock {
    type Err = BadAddressBlock;

    fn from_str(text: &str) -> Result<Self, BadAddressBlock> {
        let (first, bits) = match text.split_once('/') {
            Some((first, bits)) => (first, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().map_err(|_| BadAddressBlock)?;
        let all = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            // Only digits: the parser of numbers would take `+8` too.
            Some(bits) if bits.bytes().all(|c| c.is_ascii_digit()) => {
                bits.parse().map_err(|_| BadAddressBlock)?
            }
            Some(_) => return Err(BadAddressBlock),
            None => all,
        };
        if bits > all {
            return Err(BadAddressBlock);
        }
        match first.to_canonical() {
            // A block of IPv4 addresses written as IPv6 ones, unless it has others too.
            IpAddr::V4(inside) if first.is_ipv6() && bits >= 96 => {
                Ok(Self { first: inside.into(), bits: bits - 96 })
            }
            _ => Ok(Self { first, bits }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(block: &str, inside: &[&str], outside: &[&str]) {
        let parsed: AddressBlock = block.parse().unwrap();
        let contains = |address: &&str| parsed.contains(address.parse().unwrap());
        assert_eq!(inside.iter().find(|address| !contains(address)), None, "{block}");
        assert_eq!(outside.iter().find(|address| contains(address)), None, "{block}");
    }

    #[test]
    fn an_address_is_a_block_of_one() {
        check("10.0.0.1", &["10.0.0.1", "::ffff:10.0.0.1"], &["10.0.0.2", "::1", "::10.0.0.1"]);
        check("::1", &["::1"], &["::2", "127.0.0.1"]);
    }

    #[test]
    fn a_block_has_all_that_begin_alike() {
        check("10.0.0.0/8", &["10.255.0.1"], &["11.0.0.0", "9.255.255.255"]);
        check("10.7.7.7/8", &["10.0.0.1"], &["11.0.0.0"]);
        check("192.168.4.0/22", &["192.168.7.255"], &["192.168.8.0"]);
        check("fd00::/8", &["fd12::1"], &["fe80::1"]);
        check("0.0.0.0/0", &["8.8.8.8", "::ffff:8.8.8.8"], &["2001:db8::1"]);
        check("::/0", &["2001:db8::1"], &["8.8.8.8"]);
    }

    #[test]
    fn an_address_inside_another_is_what_it_is() {
        check("::ffff:10.0.0.0/104", &["10.1.1.1", "::ffff:10.1.1.1"], &["11.0.0.0"]);
        check("::ffff:10.0.0.1", &["10.0.0.1"], &["10.0.0.2"]);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in
            ["", "*", "proxy", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "1/8"]
        {
            assert_eq!(text.parse::<AddressBlock>(), Err(BadAddressBlock), "{text:?}");
        }
    }
}

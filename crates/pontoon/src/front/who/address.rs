//! The client's address, through the proxies that are trusted.
//!
//! Each proxy adds the address it saw at the right end of `X-Forwarded-For`; what stands further to
//! the left came from outside and can be anything. So the list is read from the right: the first
//! address that is not a trusted proxy is the client's.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::HeaderValue;

use super::super::headers::only;
use super::super::refusal::Refusal;

/// More entries or bytes than these are not looked at, counted from the right.
const MAX_ENTRIES: usize = 32;
const MAX_BYTES: usize = 1024;

const FORWARDED_FOR: &str = "x-forwarded-for";
const REAL_IP: &str = "x-real-ip";

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress {
    /// The nearest address to the client that can be believed.
    pub address: IpAddr,
    /// Whether it is the client's own, not that of a proxy in front of many.
    pub is_known: bool,
}

/// Where a request that `peer` sent comes from.
///
/// # Errors
///
/// 400 when a trusted proxy sends `X-Real-IP` twice.
pub fn client_address(
    headers: &HeaderMap,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Result<ClientAddress, Refusal> {
    let peer = peer.to_canonical();
    let known = |address| ClientAddress { address, is_known: true };
    let hidden = |address| ClientAddress { address, is_known: false };
    if !is_trusted(peer) {
        return Ok(known(peer));
    }
    let real = only(headers, REAL_IP)?.map(HeaderValue::as_bytes);
    let Some(entries) = forwarded_for(headers) else {
        return Ok(real.and_then(parse).map_or(hidden(peer), known));
    };
    let mut nearest = peer;
    for entry in entries {
        // What cannot be read hides everything before it, and the last proxy is all that is known.
        let Some(address) = parse(entry) else {
            return Ok(hidden(nearest));
        };
        if !is_trusted(address) {
            return Ok(known(address));
        }
        nearest = address;
    }
    // All of them are ours: the client is inside.
    Ok(known(nearest))
}

/// The entries of all `X-Forwarded-For` lines from right to left, one more than is looked at.
/// `None` if nothing was said.
fn forwarded_for(headers: &HeaderMap) -> Option<Vec<&[u8]>> {
    let mut entries = Vec::new();
    let mut left = MAX_BYTES;
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    for line in lines.iter().rev() {
        for entry in line.as_bytes().rsplit(|byte| *byte == b',') {
            match left.checked_sub(entry.len() + 1) {
                Some(rest) if entries.len() < MAX_ENTRIES => left = rest,
                // Not an address, so the walk ends here if it comes this far.
                _ => {
                    entries.push(&b""[..]);
                    return Some(entries);
                }
            }
            entries.push(entry.trim_ascii());
        }
    }
    entries.iter().any(|entry| !entry.is_empty()).then_some(entries)
}

/// An address, with or without a port. One that no client can have is none.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim();
    let bare = || text.parse::<IpAddr>().ok();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    // The standard reading would take a zone in a socket address; it means something only there.
    let with_port = || {
        let address: SocketAddr = text.parse().ok()?;
        (!text.contains('%')).then(|| address.ip())
    };
    let address = bare().or_else(bracketed).or_else(with_port)?.to_canonical();
    let is_broadcast = address == IpAddr::from([255, 255, 255, 255]);
    let is_usable = !address.is_unspecified() && !address.is_multicast() && !is_broadcast;
    is_usable.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_trusted(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => address.octets()[0] == 10,
            IpAddr::V6(address) => address.segments()[0] == 0xfd00,
        }
    }

    /// What one request comes to: the address, with `?` behind it where it is only a proxy's.
    #[track_caller]
    fn check(peer: &str, lines: &[&str], real: Option<&str>, expected: &str) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        if let Some(real) = real {
            headers.append(REAL_IP, real.parse().unwrap());
        }
        let found = client_address(&headers, peer.parse().unwrap(), is_trusted).unwrap();
        let found = format!("{}{}", found.address, if found.is_known { "" } else { "?" });
        assert_eq!(found, expected, "{peer} {lines:?} {real:?}");
    }

    /// A request from the proxy 10.0.0.1 with one line.
    #[track_caller]
    fn check_line(line: &str, expected: &str) {
        check("10.0.0.1", &[line], None, expected);
    }

    #[test]
    fn a_peer_that_is_not_trusted_is_the_client() {
        check("203.0.113.9", &[], None, "203.0.113.9");
        check("203.0.113.9", &["198.51.100.7"], Some("198.51.100.8"), "203.0.113.9");
        check("203.0.113.9", &["10.0.0.1"], None, "203.0.113.9");
        check("2001:db8::1", &["198.51.100.7"], None, "2001:db8::1");
        check("::ffff:203.0.113.9", &["198.51.100.7"], None, "203.0.113.9");
    }

    #[test]
    fn the_first_from_the_right_that_is_not_trusted_is_the_client() {
        check_line("198.51.100.7", "198.51.100.7");
        check_line("1.1.1.1, 198.51.100.7", "198.51.100.7");
        check_line("1.1.1.1, 198.51.100.7, 10.0.0.2", "198.51.100.7");
        check_line("10.9.9.9, 198.51.100.7, 10.0.0.3, 10.0.0.2", "198.51.100.7");
        check_line("1.1.1.1,198.51.100.7,10.0.0.2", "198.51.100.7");
        check_line("rubbish, 198.51.100.7", "198.51.100.7");
        check("::ffff:10.0.0.1", &["198.51.100.7"], None, "198.51.100.7");
        check("fd00::1", &["198.51.100.7, fd00::2"], None, "198.51.100.7");
    }

    #[test]
    fn lines_are_joined_in_their_order() {
        check("10.0.0.1", &["1.1.1.1", "198.51.100.7"], None, "198.51.100.7");
        check("10.0.0.1", &["1.1.1.1, 198.51.100.7", "10.0.0.2"], None, "198.51.100.7");
        check("10.0.0.1", &["198.51.100.7", "10.0.0.3", "10.0.0.2"], None, "198.51.100.7");
    }

    #[test]
    fn addresses_are_read_in_every_form_they_are_sent_in() {
        check_line("198.51.100.7:4711", "198.51.100.7");
        check_line("2001:db8::7", "2001:db8::7");
        check_line("[2001:db8::7]", "2001:db8::7");
        check_line("[2001:db8::7]:4711", "2001:db8::7");
        check_line("2001:DB8:0:0::7", "2001:db8::7");
        check_line("::ffff:198.51.100.7", "198.51.100.7");
        check_line("[::ffff:198.51.100.7]:80", "198.51.100.7");
        check_line("198.51.100.7, ::ffff:10.0.0.2", "198.51.100.7");
    }

    #[test]
    fn what_cannot_be_read_ends_the_walk_at_the_last_proxy() {
        for entry in [
            "unknown",
            "_hidden",
            "198.51.100.7:",
            "198.51.100.7:99999",
            "198.51.100",
            "127.1",
            "0x7f.0.0.1",
            "198.51.100.007",
            "fe80::1%eth0",
            "[fe80::1%eth0]:80",
            "[fe80::1%2]:80",
            "[198.51.100.7]",
            "\"198.51.100.7\"",
            "198.51.100.7 1.1.1.1",
            "0.0.0.0",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "for=198.51.100.7",
            "198.51.100.7/32",
        ] {
            check_line(entry, "10.0.0.1?");
            check_line(&format!("1.1.1.1, {entry}, 10.0.0.2"), "10.0.0.2?");
        }
        check_line("1.1.1.1,", "10.0.0.1?");
        check_line("1.1.1.1, , 10.0.0.2", "10.0.0.2?");
        check_line("1.1.1.1, é", "10.0.0.1?");
    }

    #[test]
    fn a_client_among_the_trusted_is_the_left_most() {
        check_line("10.0.0.7", "10.0.0.7");
        check_line("10.0.0.7, 10.0.0.2", "10.0.0.7");
    }

    #[test]
    fn the_real_ip_counts_where_nothing_else_was_said() {
        check("10.0.0.1", &[], Some("198.51.100.7"), "198.51.100.7");
        check("10.0.0.1", &[""], Some("198.51.100.7"), "198.51.100.7");
        check("10.0.0.1", &[], Some("[2001:db8::7]:80"), "2001:db8::7");
        check("10.0.0.1", &["1.1.1.1"], Some("198.51.100.7"), "1.1.1.1");
        check("10.0.0.1", &["rubbish"], Some("198.51.100.7"), "10.0.0.1?");
        check("10.0.0.1", &[], Some("rubbish"), "10.0.0.1?");
        check("10.0.0.1", &[], Some("1.1.1.1, 198.51.100.7"), "10.0.0.1?");
        check("10.0.0.1", &[], None, "10.0.0.1?");
    }

    #[test]
    fn a_long_list_is_read_from_the_right_up_to_its_limit() {
        let padded = format!("{}198.51.100.7", "1.1.1.1, ".repeat(10_000));
        check_line(&padded, "198.51.100.7");
        let proxies = |count: usize| ["10.0.0.2"].repeat(count).join(",");
        check_line(&format!("198.51.100.7,{}", proxies(31)), "198.51.100.7");
        check_line(&format!("198.51.100.7,{}", proxies(32)), "10.0.0.2?");
        check_line(&proxies(32), "10.0.0.2");
        let wide = " ".repeat(MAX_BYTES);
        check_line(&format!("198.51.100.7,{wide}10.0.0.2"), "10.0.0.1?");
        let lines: Vec<_> = std::iter::repeat_n("10.0.0.2", 40).collect();
        check("10.0.0.1", &lines, None, "10.0.0.2?");
    }
}

//! The addresses that a fetch may connect to (SSRF protection). Checked when a connection is made, with the resolved address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Metadata services, which return secrets of the machine or the cloud without authentication.
const METADATA: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254))];

/// Loopback, link-local and metadata addresses are blocked by default.
#[derive(Debug, Clone, Default)]
pub struct AddressFilter {
    /// Further blocked ranges.
    pub blocked: Vec<IpNet>,
    /// Exceptions from all blocked ranges.
    pub allowed: Vec<IpNet>,
}

impl AddressFilter {
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        let address = unmapped(address);
        let within = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&address));
        within(&self.allowed) || !(is_blocked(address) || within(&self.blocked))
    }
}

fn is_blocked(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast() || address.octets()[0] == 0,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    link_local
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || METADATA.contains(&address)
}

/// The IPv4 address inside an IPv6 address: mapped, compatible, or NAT64.
fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let [a, b, c, d, e, f, high, low] = v6.segments();
    let embedded = || {
        let bits = (u32::from(high) << 16) | u32::from(low);
        IpAddr::V4(Ipv4Addr::from(bits))
    };
    match [a, b, c, d, e, f] {
        [0x64, 0xff9b, 0, 0, 0, 0] | [0, 0, 0, 0, 0, 0xffff] => embedded(),
        [0, 0, 0, 0, 0, 0] if high != 0 => embedded(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &AddressFilter, address: &str, admitted: bool) {
        assert_eq!(guard.allows(address.parse().unwrap()), admitted, "{address}");
    }

    #[test]
    fn loopback_link_local_and_metadata_addresses_are_blocked_in_every_notation() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            check(&AddressFilter::default(), address, false);
        }
        for address in ["203.0.113.1", "10.0.0.1", "192.168.1.1", "2001:db8::1", "fd00::1"] {
            check(&AddressFilter::default(), address, true);
        }
    }

    #[test]
    fn configured_ranges_block_and_allow() {
        let private = AddressFilter { blocked: vec!["10.0.0.0/8".parse().unwrap()], allowed: Vec::new() };
        check(&private, "10.1.2.3", false);
        check(&private, "::ffff:10.1.2.3", false);
        check(&private, "11.1.2.3", true);
        let open = AddressFilter { allowed: vec!["127.0.0.0/8".parse().unwrap()], ..private };
        check(&open, "127.0.0.1", true);
        check(&open, "::1", false);
    }
}

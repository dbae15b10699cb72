//! The addresses that a fetch may connect to (SSRF protection). Checked when a connection is made, with the resolved address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Never the address of a Service: the machine itself, its links, and metadata services, which return secrets without authentication.
const LOCAL: [IpNet; 15] = [
    v4([0, 0, 0, 0], 8),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([224, 0, 0, 0], 4),
    v4([255, 255, 255, 255], 32),
    // Metadata at Alibaba, Oracle and Azure.
    v4([100, 100, 100, 200], 32),
    v4([192, 0, 0, 192], 32),
    v4([168, 63, 129, 16], 32),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 127),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
    // Metadata at Amazon (also its older range), Google and Scaleway.
    v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0], 32),
    v6([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254], 128),
    v6([0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042], 128),
    v6([0x0100, 0, 0, 0, 0, 0, 0, 0], 64),
];

/// Private and special ranges, in which Services of the cluster are the exception.
const PRIVATE: [IpNet; 12] = [
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    // Between a provider and its customers; pods and nodes of some clouds.
    v4([100, 64, 0, 0], 10),
    v4([192, 0, 0, 0], 24),
    v4([198, 18, 0, 0], 15),
    v4([240, 0, 0, 0], 4),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
    // They carry an IPv4 address that is reached through a gateway: NAT64 of one's own, Teredo, 6to4.
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length))
}

/// Loopback, link-local, private and metadata addresses are blocked by default.
#[derive(Debug, Clone, Default)]
pub struct AddressFilter {
    /// Further blocked ranges, Services included.
    pub blocked: Vec<IpNet>,
    /// Exceptions from all blocked ranges.
    pub allowed: Vec<IpNet>,
}

impl AddressFilter {
    /// `is_service` is asked of private addresses only.
    pub(super) fn allows(&self, address: IpAddr, is_service: impl Fn(IpAddr) -> bool) -> bool {
        let address = unmapped(address);
        let within = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&address));
        if within(&self.allowed) {
            return true;
        }
        !within(&self.blocked) && !within(&LOCAL) && (!within(&PRIVATE) || is_service(address))
    }
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
        [0x64, 0xff9b, 0, 0, 0, 0] | [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] => embedded(),
        [0, 0, 0, 0, 0, 0] if high != 0 => embedded(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &AddressFilter, address: &str, allowed: bool) {
        assert_eq!(guard.allows(address.parse().unwrap(), |_| false), allowed, "{address}");
    }

    const NEVER: [&str; 24] = [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "169.254.169.254",
        "fe80::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:42::42",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "224.0.0.1",
        "ff02::1",
        "100::1",
        "255.255.255.255",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "::ffff:0.0.0.0",
    ];

    const PRIVATE: [&str; 13] = [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "240.0.0.1",
        "fd00::1",
        "fec0::1",
        "64:ff9b:1::a00:1",
        "2001::1",
        "2002:a00:1::1",
    ];

    #[test]
    fn local_private_and_metadata_addresses_are_blocked_in_every_notation() {
        for address in NEVER.iter().chain(&PRIVATE).chain(&["::ffff:10.0.0.1", "64:ff9b::a00:1"]) {
            check(&AddressFilter::default(), address, false);
        }
        for address in ["203.0.113.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2001:db8::1", "2606:4700::1"] {
            check(&AddressFilter::default(), address, true);
        }
    }

    #[test]
    fn a_service_may_be_private_and_nothing_else() {
        let allows = |guard: &AddressFilter, address: &str| guard.allows(address.parse().unwrap(), |_| true);
        for address in PRIVATE {
            assert!(allows(&AddressFilter::default(), address), "{address}");
        }
        for address in NEVER {
            assert!(!allows(&AddressFilter::default(), address), "{address}");
        }
        let blocked = AddressFilter { blocked: vec!["10.0.0.0/8".parse().unwrap()], allowed: Vec::new() };
        assert!(!allows(&blocked, "10.0.0.1"), "what an operator blocks stays blocked");
    }

    #[test]
    fn configured_ranges_block_and_allow() {
        let blocked = AddressFilter { blocked: vec!["203.0.113.0/24".parse().unwrap()], allowed: Vec::new() };
        check(&blocked, "203.0.113.3", false);
        check(&blocked, "::ffff:203.0.113.3", false);
        check(&blocked, "203.0.114.3", true);
        let open = AddressFilter { allowed: vec!["127.0.0.0/8".parse().unwrap()], ..blocked };
        check(&open, "127.0.0.1", true);
        check(&open, "::1", false);
    }
}

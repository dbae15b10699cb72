//! A 64-bit id of a workload: an identity at an address, since the replicas of a workload share its identity. Short enough to be exchanged
//! between replicas of the control plane, and equal in all of them.

use std::net::IpAddr;

use aws_lc_rs::digest::{Context, SHA256};

/// IPv4-mapped IPv6 addresses count as IPv4.
pub fn workload(identity: &str, address: IpAddr) -> u64 {
    digest(&[identity.as_bytes(), &[0], address.to_canonical().to_string().as_bytes()])
}

/// The first eight bytes of the SHA-256 of the concatenated parts: collisions cannot be constructed.
pub fn digest(parts: &[&[u8]]) -> u64 {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let hash = context.finish();
    hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_an_identity_at_an_address() {
        let one = workload("spiffe://a", [10, 0, 0, 1].into());
        assert_eq!(one, workload("spiffe://a", "::ffff:10.0.0.1".parse().unwrap()));
        assert_ne!(one, workload("spiffe://a", [10, 0, 0, 2].into()), "a replica has its own");
        assert_ne!(one, workload("spiffe://b", [10, 0, 0, 1].into()));
        assert_eq!(digest(&[b"abc"]), 0xba78_16bf_8f01_cfea, "SHA-256, in every version");
    }
}

//! The descriptor pool: all Envoy v3 messages, with or without a generated type, and Istio's own.

use std::sync::LazyLock;

use prost_reflect::DescriptorPool;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let set: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
    DescriptorPool::decode(set).expect("build.rs wrote a complete descriptor set")
});

/// Decoded on first use: 35 ms and 18 MB, so commands that need no JSON do not pay for it.
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

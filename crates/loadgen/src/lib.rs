//! Load generator: a swarm of delta ADS clients that behave like Envoys, synthetic meshes to serve to them, certificate signing
//! requests, and attacks.
//! Decodes as little as it can: the control plane is what is measured.

pub mod attack;
mod certificate;
pub mod csr;
pub mod mesh;
mod names;
mod proxy;
mod resource_type;
mod round;
mod scan;
mod swarm;
mod tally;
mod tls;
mod xds_state;

pub use swarm::{Swarm, SwarmOptions};

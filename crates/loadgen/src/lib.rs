//! A swarm of ADS clients that behave like Envoys, and meshes to serve to them. Decodes as little as it can: the control plane is what
//! is measured.

mod certificate;
pub mod csr;
mod held;
mod kind;
pub mod mesh;
mod names;
mod proxy;
mod round;
mod scan;
mod swarm;
mod tally;
mod tls;

pub use swarm::{Options, Swarm};

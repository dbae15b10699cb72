//! The agent beside one proxy: its key, its certificate and their renewal, and SDS for Envoy. And the clients of the secure port. No mesh.

mod ca_client;
mod certificate;
mod debug_client;
mod key_provider;
mod probe;
mod renewal;
mod secrets;
mod socket;
mod status;
mod unverified;

pub use ca_client::{CaClient, CaClientError, CaEndpoint};
pub use certificate::{CertificateCell, WorkloadCertificate};
pub use debug_client::{DebugClientError, DebugEndpoint};
pub use key_provider::{KeyProvider, KeyProviderError};
pub use probe::{Probes, ProbesError};
pub use renewal::{Renewal, next_backoff, run_renewal};
pub use secrets::{Secrets, certificate_secret, roots_secret};
pub use socket::serve;
pub use status::Status;

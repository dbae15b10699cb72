//! What runs beside one proxy: its key, its certificate and their renewal, and the secrets that Envoy asks for. No mesh.

mod authority;
mod held;
mod key_provider;
mod renewal;
mod secrets;
mod socket;

pub use authority::{AskError, Authority, Signer};
pub use held::{Held, Holder};
pub use key_provider::{KeyProvider, NoProvider};
pub use renewal::{Renewal, keep, next_pause};
pub use secrets::{Secrets, certificate_secret, roots_secret};
pub use socket::serve;

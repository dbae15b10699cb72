//! What runs beside one proxy: its key, its certificate and their renewal, and the secrets that Envoy asks for. No mesh.

mod authority;
mod held;
mod renewal;
mod secrets;
mod socket;

pub use authority::{AskError, Authority};
pub use held::{Held, Holder};
pub use renewal::{Renewal, keep};
pub use secrets::Secrets;
pub use socket::serve;

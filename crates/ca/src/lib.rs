//! The certificate authority: whose certificate it is, who signs it and for how long; and who a caller is. No sockets, no mesh.

mod authority;
mod certificate;
mod client;
mod csr;
mod forwarded;
mod identity;
mod issuer;
mod key;
mod lifetime;
mod metrics;
mod plugged;
mod root;
mod rotation;
mod service;
mod tls;
mod token;
mod trust;

pub use authority::{Authority, CannotSign, Signed};
pub use certificate::{Certificate, Unusable, bundle};
pub use client::{ClientCertificate, ClientRefused};
pub use csr::{Csr, CsrRefused};
pub use forwarded::forwarded_identities;
pub use identity::{Identity, NotSpiffe};
pub use issuer::{Issuer, IssuerError};
pub use jsonwebtoken::jwk::JwkSet;
pub use key::{KeyType, Private};
pub use lifetime::{Lifetimes, TooLong};
pub use metrics::Metrics;
pub use plugged::{Plugged, PluggedError, plugged};
pub use root::{KeepError, Kept, RootOptions};
pub use rotation::Stage;
pub use service::{Certificates, Denied};
pub use tls::{Clients, Serving, TlsError, server_config};
pub use token::{TokenRefused, TokenRules, Tokens};
pub use trust::TrustDomains;

//! What is written to and asked of a cluster besides its objects: the lease of the leader, the root certificate in every namespace, the
//! Secret of the authority, the trust in the webhook, the status of objects, addresses of ServiceEntries, certificates from a signer of the cluster, reviews of tokens and of rights. Knows no mesh.

mod access;
mod addresses;
mod bundle;
mod leadership;
mod lease;
mod object;
mod replicas;
mod reports;
mod review;
mod root_cert;
mod secret;
mod signing;
mod status;

pub use access::Access;
pub use addresses::AddressWriter;
pub use bundle::WebhookBundle;
pub use leadership::{Elected, Leadership, leadership};
pub use lease::{Lease, Timing};
pub use replicas::{Line, Others, Replicas};
pub use reports::{Reports, Seen};
pub use review::{Account, Reviews, TokenError};
pub use root_cert::{NAME as ROOT_CERT, RootCert, namespaces};
pub use secret::{AuthoritySecret, Material, Shared};
pub use signing::{NotSigned, Signing, Usage};
pub use status::{StatusWriter, Verdict, Verdicts};

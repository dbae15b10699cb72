//! Everything that is written to a cluster or asked of its API server besides its objects: leader election, the root certificate in every
//! namespace, the CA Secret, the webhook's caBundle, status of objects, addresses of ServiceEntries, CertificateSigningRequests, TokenReviews and SubjectAccessReviews. Knows no mesh.

mod access;
mod acknowledgements;
mod addresses;
mod leadership;
mod lease;
mod lease_owner;
mod object;
mod replicas;
mod reports;
mod review;
mod rights;
mod root_cert;
mod secret;
mod signing;
mod status;
mod webhook_bundle;

pub use access::SecretAccess;
pub use acknowledgements::{AckReport, Acknowledgements};
pub use addresses::AddressWriter;
pub use leadership::{Leadership, TermGrant, leadership};
pub use lease::{Lease, LeaseTiming};
pub use lease_owner::LeaseOwner;
pub use replicas::{OtherReplicas, ReplicaReport, Replicas, ServingReplica};
pub use reports::{PublishedReport, Reports};
pub use review::{Account, TokenError, TokenReviewer};
pub use rights::{MissingRight, Right, missing_rights};
pub use root_cert::{NAME as ROOT_CERT, RootCert, namespaces};
pub use secret::{CaSecret, CaSecretContent, CaSecretData};
pub use signing::{CsrSigner, SigningError, Usage};
pub use status::{StatusWriter, Verdict, Verdicts};
pub use webhook_bundle::WebhookBundle;

//! Where objects come from. `files` reads a folder tree, `kube` an API server, `text` one file, `jwks` keys of token issuers; nothing here knows what the
//! objects mean.

pub mod files;
pub mod jwks;
pub mod kube;
pub mod text;

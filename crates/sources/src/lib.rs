//! Sources of configuration objects: `files` reads a folder tree, `kube` an API server, `text` the mesh config file, `jwks` the keys of token issuers. They
//! do not interpret the objects.

pub mod files;
pub mod jwks;
pub mod kube;
pub mod text;

//! Where objects come from. `files` reads a folder tree, `text` one file, `jwks` fetches keys of token issuers; nothing here knows what the
//! objects mean.

pub mod files;
pub mod jwks;
pub mod text;

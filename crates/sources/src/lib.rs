//! Where objects come from. `files` reads a folder tree, `text` one file; nothing here knows what the objects mean.

pub mod files;
pub mod text;

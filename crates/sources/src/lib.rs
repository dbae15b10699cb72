//! Where objects come from. `files` reads a folder tree; nothing here knows what the objects mean.

pub mod files;

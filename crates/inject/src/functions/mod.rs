//! The functions of injection templates besides Go's own: those of the library sprig, and over them Istio's.

mod arguments;
mod conversion;
mod dictionary;
mod encoding;
mod istio;
mod list;
mod logic;
mod number;
mod pattern;
mod semver;
mod text;
mod unsupported;
mod words;
mod yaml_text;

use crate::template::{Function, builtin};

/// Istio's functions replace sprig's of the same name, and these Go's.
pub(crate) fn lookup(name: &str) -> Option<&'static Function> {
    let tables = [
        istio::FUNCTIONS,
        text::FUNCTIONS,
        words::FUNCTIONS,
        list::FUNCTIONS,
        dictionary::FUNCTIONS,
        logic::FUNCTIONS,
        number::FUNCTIONS,
        conversion::FUNCTIONS,
        encoding::FUNCTIONS,
        pattern::FUNCTIONS,
        semver::FUNCTIONS,
    ];
    let found = tables.into_iter().find_map(|table| table.iter().find(|function| function.name == name));
    found.or_else(|| unsupported::lookup(name)).or_else(|| builtin(name))
}

#[cfg(test)]
mod tests;

//! The commands except `serve`.

pub(crate) mod admission;
pub(crate) mod agent;
pub(crate) mod bootstrap;
pub(crate) mod check;
pub(crate) mod check_inject;
mod client;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod folder;
pub(crate) mod inject;
mod input;
pub(crate) mod install_agent;
pub(crate) mod nacks;
mod object_name;
mod object_text;
mod patches;
pub(crate) mod plan;
mod prometheus;
pub(crate) mod proxies;
pub(crate) mod pushes;
pub(crate) mod render;
mod replica_pages;
pub(crate) mod replicas;
pub(crate) mod request;
pub(crate) mod root_rotation;

pub(crate) mod service_entries;
pub(crate) mod token;
pub(crate) mod values;
pub(crate) mod wait;

use std::io::Write;

use serde_json::Value;

use crate::args::{Format, Listing, Version};
use crate::yaml;
use server::version;

/// How a command that could run has ended; the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// It ran, and found a problem.
    Found,
}

pub(crate) fn show_version(args: &Version) -> Outcome {
    match args.output {
        Listing::Json => print_document(&version::document(), Format::Json),
        Listing::Text => print(&format!("{}\n", version::dashed())),
    }
    Outcome::Done
}

/// `1 proxy`, `2 proxies`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn print_document(document: &Value, format: Format) {
    match format {
        Format::Json => print(&format!("{document:#}\n")),
        Format::Yaml => print(&yaml::document(document)),
    }
}

/// A reader that has seen enough (`| head`) closes the pipe; that is not an error.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

//! The commands of the program except `serve`: each reads its arguments, does one thing and says how it ended. What a server answers is in `admin`.

pub mod admission;
pub mod agent;
pub mod bootstrap;
pub mod check;
pub mod check_inject;
mod client;
pub mod demo;
pub mod doctor;
pub mod explain;
mod folder;
pub mod history;
pub mod inject;
mod input;
pub mod install_agent;
pub mod nacks;
mod object_name;
mod object_text;
mod patches;
pub mod plan;
mod prometheus;
pub mod proxies;
pub mod pushes;
pub mod render;
mod replica_pages;
pub mod replicas;
pub mod request;
pub mod root_rotation;
pub mod scope;
pub mod service_entries;
pub mod token;
pub mod values;
pub mod wait;
mod yaml;

use std::io::Write;

use serde_json::Value;

use server::version;
use settings::args::{Format, Listing, VersionArgs};

/// How a command that could run has ended; the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    Done,
    /// It ran, and found a problem.
    Found,
}

pub fn show_version(args: &VersionArgs) -> CommandOutcome {
    match args.output {
        Listing::Json => print_document(&version::document(), Format::Json),
        Listing::Text => print(&format!("{}\n", version::dashed())),
    }
    CommandOutcome::Done
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

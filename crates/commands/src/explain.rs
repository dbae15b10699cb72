//! `meltemi explain`: why something is as it is. Each subject has a file; here is what they share: objects without a server, and texts.

mod object;
mod proxy;
mod request;
mod request_mesh;

use std::collections::HashMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use config::diagnostic::{Location, Severity};
use config::locator::Locator;
use config::tree::Position;
use model::{Environment, Mesh};
use provenance::Decision;
use server::LoadedObjects;

use super::{CommandOutcome, counted, input};
use settings::args::{Env, ExplainCommand, InputArgs, MeshArgs};
use settings::mesh_settings;

pub fn run(command: ExplainCommand, env: &Env) -> Result<CommandOutcome> {
    match command {
        ExplainCommand::Proxy(args) => proxy::run(args, env),
        ExplainCommand::Object(args) => object::run(args, env),
        ExplainCommand::Request(args) => request::run(*args, env),
    }
}

/// Objects that were read without a server.
struct OfflineMesh {
    loaded: LoadedObjects,
    mesh: Mesh,
    environment: Arc<Environment>,
}

impl OfflineMesh {
    /// `None`: a server is to be asked.
    fn read(config: Option<PathBuf>, mesh: MeshArgs, env: &Env) -> Result<Option<OfflineMesh>> {
        let Some(path) = config else { return Ok(None) };
        let settings = mesh_settings(mesh, &env.mesh);
        let input = InputArgs { path: Some(path), kubeconfig: None, max_file_size: None };
        let loaded = input::read(input, &settings)?;
        let environment = Arc::new(settings.environment());
        let snapshot = loaded.store.snapshot();
        let errors = snapshot.diagnostics.iter().filter(|it| it.severity == Severity::Error).count();
        if errors > 0 {
            eprintln!(
                "note: what is invalid is left out, {}: `meltemi check` says why",
                counted(errors, "error", "errors")
            );
        }
        let mesh = Mesh::new(&snapshot, &environment);
        Ok(Some(OfflineMesh { loaded, mesh, environment }))
    }

    /// Where a field is written, for objects of files; `None` for those of files that cannot be read any more.
    fn locate(&self, texts: &mut HashMap<Arc<str>, Option<Locator>>, at: &Location, field: &str) -> Option<Location> {
        let read = || self.loaded.text(&at.file).map(|text| Locator::new(&text));
        let locator = texts.entry(at.file.clone()).or_insert_with(read).as_ref()?;
        let found = locator.field(Position { line: at.line, column: at.column }, field)?;
        Some(Location { line: found.line, column: found.column, ..at.clone() })
    }
}

/// A value of a query: everything but letters, digits and `-._~` is percent-encoded.
pub(crate) fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'-' | b'.' | b'_' | b'~' => text.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            _ => write!(text, "%{byte:02X}").expect("a String grows as needed"),
        }
        text
    })
}

fn decisions_text(decisions: &[Decision]) -> String {
    let mut text = String::new();
    for Decision { about, why, others, .. } in decisions {
        text.push_str(&format!("  {about}: {why}\n"));
        for loser in others {
            text.push_str(&format!("    not {}: {}\n", loser.object, loser.why));
        }
    }
    text
}

/// ` (file:line:column)`, or nothing.
fn place(at: Option<&String>) -> String {
    at.map_or_else(String::new, |at| format!(" ({at})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clusters_are_encoded() {
        assert_eq!(encoded("CDS/outbound|80||a.b"), "CDS%2Foutbound%7C80%7C%7Ca.b");
    }
}

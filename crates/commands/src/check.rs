//! `meltemi check`: the diagnostics of objects, each by itself and in the mesh.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use config::diagnostic::{Diagnostic, Severity};
use config::locator::Locator;
use config::object::UnreadObjects;
use config::store::Snapshot;
use config::tree::Position;
use serde_json::{Value, json};
use server::LoadedObjects;
use server::settings::MeshSettings;

use super::{CommandOutcome, input, patches, print, print_document};
use settings::args::{CheckArgs, Env, Format, Listing};
use settings::mesh_settings;

pub fn run(args: CheckArgs, env: &Env) -> Result<CommandOutcome> {
    let settings = mesh_settings(args.mesh, &env.mesh);
    let loaded = input::read(args.input, &settings)?;
    let snapshot = loaded.snapshot();
    let diagnostics = diagnostics(&loaded, &snapshot, &settings);
    let count = |severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let objects = snapshot.metas().len();
    match args.output {
        Listing::Text => {
            print(&diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect::<String>());
            eprintln!("{objects} objects in {}: {errors} errors, {warnings} warnings", loaded.origin);
        }
        Listing::Json => {
            let notes: Vec<Value> = diagnostics.iter().map(document).collect();
            let result = json!({"files": loaded.files, "objects": objects, "errors": errors, "warnings": warnings, "notes": notes});
            print_document(&result, Format::Json);
        }
    }
    let has_problems = errors > 0 || args.strict && warnings > 0;
    Ok(if has_problems { CommandOutcome::Found } else { CommandOutcome::Done })
}

/// Sorted.
fn diagnostics(loaded: &LoadedObjects, snapshot: &Snapshot, settings: &MeshSettings) -> Vec<Diagnostic> {
    let mesh = model::Mesh::new(snapshot, &Arc::new(settings.environment()));
    let mut of_mesh = mesh.analysis();
    of_mesh.extend(mesh.policy_diagnostics());
    of_mesh.extend(patches::diagnostics(&mesh, snapshot));
    let mut diagnostics = at_fields(of_mesh, loaded);
    diagnostics.extend(snapshot.diagnostics.iter().cloned());
    let mut unread = UnreadObjects::extract(&mut diagnostics);
    unread.extend(&loaded.unread);
    diagnostics.sort();
    if !unread.is_empty() {
        diagnostics.push(Diagnostic::warning(unread.to_string()));
    }
    diagnostics
}

/// Diagnostics that were made from objects know where their object begins. Here each gets the place of its field.
fn at_fields(mut diagnostics: Vec<Diagnostic>, loaded: &LoadedObjects) -> Vec<Diagnostic> {
    let mut locators: HashMap<Arc<str>, Option<Locator>> = HashMap::new();
    for diagnostic in &mut diagnostics {
        let Some(at) = diagnostic.at.as_mut().filter(|_| !diagnostic.field.is_empty()) else { continue };
        let locator =
            locators.entry(at.file.clone()).or_insert_with(|| loaded.text(&at.file).map(|text| Locator::new(&text)));
        let object = Position { line: at.line, column: at.column };
        if let Some(found) = locator.as_ref().and_then(|locator| locator.field(object, &diagnostic.field)) {
            (at.line, at.column) = (found.line, found.column);
        }
    }
    diagnostics
}

fn document(diagnostic: &Diagnostic) -> Value {
    let mut document = json!({"severity": diagnostic.severity.to_string(), "what": diagnostic.what});
    if let Some(object) = &diagnostic.object {
        document["kind"] = object.kind.name().into();
        document["namespace"] = object.namespace.as_ref().into();
        document["name"] = object.name.as_ref().into();
    }
    if !diagnostic.field.is_empty() {
        document["field"] = diagnostic.field.as_str().into();
    }
    if let Some(at) = &diagnostic.at {
        document["file"] = at.file.as_ref().into();
        document["line"] = at.line.into();
        document["column"] = at.column.into();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::diagnostic::{Location, ObjectId};
    use config::kind::Kind;

    #[test]
    fn a_diagnostic_as_json_has_only_known_fields() {
        assert_eq!(document(&Diagnostic::warning("odd")), json!({"severity": "warning", "what": "odd"}));
        let diagnostic = Diagnostic::error("no")
            .on(ObjectId { kind: Kind::Service, namespace: "shop".into(), name: "cart".into() })
            .field("spec.ports[0]")
            .at(Location { file: "a.yaml".into(), line: 3, column: 7 });
        let expected = json!({"severity": "error", "what": "no", "kind": "Service", "namespace": "shop", "name": "cart",
            "field": "spec.ports[0]", "file": "a.yaml", "line": 3, "column": 7});
        assert_eq!(document(&diagnostic), expected);
    }
}

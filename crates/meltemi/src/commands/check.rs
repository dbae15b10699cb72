//! `meltemi check`: the diagnostics of the objects of a folder, each by itself and in the mesh.

use std::sync::Arc;

use anyhow::Result;
use config::diagnostic::{Diagnostic, Severity};
use serde_json::{Value, json};

use super::{Outcome, patches, print, print_document};
use crate::args::{Check, Env, Format, Listing};
use crate::settings::mesh_settings;

pub(crate) fn run(args: Check, env: &Env) -> Result<Outcome> {
    let settings = mesh_settings(args.mesh, &env.mesh);
    let loaded = server::load_folder(&args.dir, &settings)?;
    let snapshot = loaded.store.snapshot();
    let mesh = model::Mesh::new(&snapshot, &Arc::new(settings.environment()));
    let mut diagnostics = mesh.analysis();
    diagnostics.extend(mesh.policy_diagnostics());
    diagnostics.extend(patches::diagnostics(&mesh, &snapshot));
    diagnostics.extend(snapshot.diagnostics.iter().cloned());
    diagnostics.sort();
    let count = |severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let (objects, files) = (loaded.objects.values().sum::<usize>(), loaded.files);
    match args.output {
        Listing::Text => {
            print(&diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect::<String>());
            eprintln!("{objects} objects in {files} files: {errors} errors, {warnings} warnings");
        }
        Listing::Json => {
            let diagnostics: Vec<Value> = diagnostics.iter().map(document).collect();
            let result = json!({"files": files, "objects": objects, "errors": errors, "warnings": warnings, "notes": diagnostics});
            print_document(&result, Format::Json);
        }
    }
    let has_problems = errors > 0 || args.strict && warnings > 0;
    Ok(if has_problems { Outcome::Found } else { Outcome::Done })
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

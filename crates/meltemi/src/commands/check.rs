//! `meltemi check`: every note on the objects of a folder, and on how they fit together.

use std::sync::Arc;

use anyhow::Result;
use config::note::{Note, Severity};
use serde_json::{Value, json};

use super::{Outcome, folder, patches, print, print_document};
use crate::args::{Check, Env, Format, Listing};
use crate::settings::Mesh;

pub(crate) fn run(args: Check, env: &Env) -> Result<Outcome> {
    let settings = Mesh::new(args.mesh, env);
    let loaded = folder::load(&args.dir, &settings)?;
    let snapshot = loaded.store.snapshot();
    let mesh = model::Mesh::new(&snapshot, &Arc::new(settings.environment()));
    let mut notes = mesh.analysis();
    notes.extend(mesh.policy_notes());
    notes.extend(patches::notes(&mesh, &snapshot));
    notes.extend(snapshot.notes.iter().cloned());
    notes.sort();
    let count = |severity| notes.iter().filter(|note| note.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let (objects, files) = (loaded.objects.values().sum::<usize>(), loaded.files);
    match args.output {
        Listing::Text => {
            print(&notes.iter().map(|note| format!("{note}\n")).collect::<String>());
            eprintln!("{objects} objects in {files} files: {errors} errors, {warnings} warnings");
        }
        Listing::Json => {
            let notes: Vec<Value> = notes.iter().map(document).collect();
            let result =
                json!({"files": files, "objects": objects, "errors": errors, "warnings": warnings, "notes": notes});
            print_document(&result, Format::Json);
        }
    }
    let found = errors > 0 || args.strict && warnings > 0;
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

fn document(note: &Note) -> Value {
    let mut document = json!({"severity": note.severity.to_string(), "what": note.what});
    if let Some(object) = &note.object {
        document["kind"] = object.kind.name().into();
        document["namespace"] = object.namespace.as_ref().into();
        document["name"] = object.name.as_ref().into();
    }
    if !note.field.is_empty() {
        document["field"] = note.field.as_str().into();
    }
    if let Some(at) = &note.at {
        document["file"] = at.file.as_ref().into();
        document["line"] = at.line.into();
        document["column"] = at.column.into();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::kind::Kind;
    use config::note::{Location, ObjectId};

    #[test]
    fn a_note_as_json_has_only_what_it_knows() {
        assert_eq!(document(&Note::warning("odd")), json!({"severity": "warning", "what": "odd"}));
        let note = Note::error("no")
            .on(ObjectId { kind: Kind::Service, namespace: "shop".into(), name: "cart".into() })
            .field("spec.ports[0]")
            .at(Location { file: "a.yaml".into(), line: 3, column: 7 });
        let expected = json!({"severity": "error", "what": "no", "kind": "Service", "namespace": "shop", "name": "cart",
            "field": "spec.ports[0]", "file": "a.yaml", "line": 3, "column": 7});
        assert_eq!(document(&note), expected);
    }
}

//! The objects with their diagnostics and their reach, and one object with its content.

use std::collections::{BTreeMap, HashMap};

use axum::http::StatusCode;
use config::diagnostic::{Diagnostic, Location, ObjectId, Severity};
use config::kind::Kind;
use config::store::Snapshot;
use serde_json::{Value, json};
use views::Views;

use super::reach::Reach;
use crate::access::Access;
use crate::page::Page;
use crate::registry;
use crate::state::AdminState;

/// Kinds with one object for each workload: the list has their number only.
const COUNTED: [Kind; 4] = [Kind::Pod, Kind::EndpointSlice, Kind::Endpoints, Kind::Node];

pub(super) fn list(state: &AdminState, access: &Access) -> Page {
    let Some((objects, views)) = loaded(state) else { return not_loaded() };
    let mut diagnostics: BTreeMap<ObjectId, Vec<Diagnostic>> = BTreeMap::new();
    let mut unattached = Vec::new();
    for diagnostic in all_diagnostics(&objects, &views) {
        match &diagnostic.object {
            Some(id) if access.sees(&id.namespace) => {
                diagnostics.entry(id.clone()).or_default().push(diagnostic);
            }
            None if *access == Access::All => unattached.push(note(&diagnostic)),
            _ => {}
        }
    }
    let reach = Reach::measure(&state.server.connections);
    let metas = objects.metas().into_iter().filter(|(_, meta)| access.sees(&meta.namespace));
    let (mut rows, mut counted) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (kind, meta) in metas {
        let id = ObjectId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() };
        let notes = diagnostics.remove(&id).unwrap_or_default();
        if COUNTED.contains(&kind) && notes.is_empty() {
            *counted.entry(kind.name()).or_default() += 1;
            continue;
        }
        let reached = reach.as_ref().map(|reach| reach.of(&id.to_string()));
        rows.push(row(&id, &notes, reached, meta.at.as_ref()));
    }
    // Rejected as a whole: there is a diagnostic, and no object.
    let first_place = |notes: &[Diagnostic]| notes.iter().find_map(|note| note.at.clone());
    rows.extend(diagnostics.iter().map(|(id, notes)| row(id, notes, None, first_place(notes).as_ref())));
    Page::json(false, &json!({"rows": rows, "counted": counted, "notes": unattached, "seq": objects.seq}))
}

fn row(id: &ObjectId, notes: &[Diagnostic], reached: Option<usize>, at: Option<&Location>) -> Value {
    let count = |severity| notes.iter().filter(|note| note.severity == severity).count();
    json!([
        id.kind.name(),
        &*id.namespace,
        &*id.name,
        count(Severity::Error),
        count(Severity::Warning),
        reached,
        at.map(ToString::to_string),
        notes.first().map(|note| &note.what),
    ])
}

pub(super) fn one(state: &AdminState, parameters: &HashMap<String, String>, access: &Access) -> Page {
    let wanted = |key: &str| parameters.get(key).map(String::as_str).unwrap_or_default();
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == wanted("kind")) else {
        return Page::text(StatusCode::BAD_REQUEST, "the kind is not one that Meltemi reads\n");
    };
    let id = ObjectId { kind, namespace: wanted("namespace").into(), name: wanted("name").into() };
    if !access.sees(&id.namespace) {
        return Page::text(StatusCode::FORBIDDEN, "this object belongs to another namespace than yours\n");
    }
    let Some((objects, views)) = loaded(state) else { return not_loaded() };
    let notes: Vec<Value> = all_diagnostics(&objects, &views)
        .filter(|diagnostic| diagnostic.object.as_ref() == Some(&id))
        .map(|diagnostic| note(&diagnostic))
        .collect();
    let metas = objects.metas();
    let meta =
        metas.iter().find(|(kind, meta)| *kind == id.kind && meta.namespace == id.namespace && meta.name == id.name);
    if meta.is_none() && notes.is_empty() {
        return Page::text(StatusCode::NOT_FOUND, "there is no such object\n");
    }
    let spec = objects.istio_spec(&id).map(|(_, spec)| spec);
    let content = meta.map(|(kind, meta)| {
        let mut content = json!({
            "apiVersion": registry::api_version(*kind), "kind": kind.name(), "metadata": registry::metadata(meta),
        });
        if let Some(spec) = spec {
            content["spec"] = spec;
        }
        content
    });
    let at = meta.and_then(|(_, meta)| meta.at.as_ref()).map(ToString::to_string);
    let reach = Reach::of_object(&state.server.connections, &id.to_string(), access);
    Page::json(false, &json!({"object": content, "at": at, "notes": notes, "reach": reach}))
}

fn note(diagnostic: &Diagnostic) -> Value {
    json!({
        "severity": diagnostic.severity.to_string(),
        "field": diagnostic.field,
        "what": diagnostic.what,
        "at": diagnostic.at.as_ref().map(ToString::to_string),
    })
}

/// Those that the server logs.
fn all_diagnostics(objects: &Snapshot, views: &Views) -> impl Iterator<Item = Diagnostic> {
    let of_mesh = views.mesh().into_iter();
    let of_mesh =
        of_mesh.flat_map(|mesh| mesh.diagnostics().into_iter().chain(mesh.policy_diagnostics()).collect::<Vec<_>>());
    objects.diagnostics.clone().into_iter().chain(of_mesh).chain(views.translation_diagnostics())
}

fn loaded(state: &AdminState) -> Option<(std::sync::Arc<Snapshot>, std::sync::Arc<Views>)> {
    Some((state.server.metrics.objects.snapshot()?, state.server.views.clone()?))
}

fn not_loaded() -> Page {
    Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")
}

//! Declared dependencies over the corpus: each object of each case is removed, put back and changed in single fields. After each of these
//! changes every proxy holds what a computation from scratch gives: a resource that reads something undeclared keeps its old content here.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Result, ensure};
use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use serde_json::{Value, json};
use testkit::parity::{Case, CaseProxy, Corpus, InProcess};
use testkit::{environment, say};
use views::Views;
use xds::{Membership, Provider, TypeUrl};

const KINDS: [TypeUrl; 6] =
    [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension, TypeUrl::NameTable];

const SOUND: &str = "cases panic outside the locks";

#[test]
fn every_proxy_follows_each_change_of_each_object() {
    let corpus = Corpus::open().expect("the corpus is there");
    let (waiting, failures) = (Mutex::new(corpus.wanted().into_iter()), Mutex::new(Vec::new()));
    let changes = Mutex::new(0);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some(name) = waiting.lock().expect(SOUND).next() else { return };
                    let followed = catch_unwind(AssertUnwindSafe(|| follow_changes(&corpus.case(&name)?)));
                    match followed {
                        Ok(Ok(count)) => *changes.lock().expect(SOUND) += count,
                        Ok(Err(e)) => failures.lock().expect(SOUND).push(format!("{name}: {e:#}")),
                        Err(_) => failures.lock().expect(SOUND).push(format!("{name}: panicked, see above")),
                    }
                }
            });
        }
    });
    let (failures, changes) = (failures.into_inner().expect(SOUND), changes.into_inner().expect(SOUND));
    say(&format!("dependencies: {changes} changes followed"));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(changes > 0, "no case has such a name");
}

/// Returns the number of changes.
fn follow_changes(case: &Case) -> Result<usize> {
    let mut world = World::new(case)?;
    let file = if case.name == "base-only" { "base.yaml" } else { "in.yaml" };
    for object in &case.objects[file] {
        world.change(object, "is removed", deletion(object).into_iter().collect())?;
        let edits = field_edits(object);
        for (what, edited) in spread(&edits, environment::field_edits()) {
            world.change(object, what, puts(edited))?;
        }
        world.change(object, "is put back", puts(object))?;
    }
    Ok(world.changes)
}

/// The proxies of a case, connected once.
struct World<'a> {
    case: &'a Case,
    store: Store,
    views: Arc<Views>,
    members: Vec<(&'a CaseProxy, Membership)>,
    changes: usize,
}

impl<'a> World<'a> {
    fn new(case: &'a Case) -> Result<Self> {
        let pod_namespace = model::Environment::default().pod_namespace;
        let mut store = Store::new(StoreOptions { pod_namespace, mesh_config: None });
        let objects = case.objects.values().flatten().flat_map(puts).collect();
        let views = Views::new(model::Environment::default());
        views.refresh(&store.apply(objects), Instant::now());
        let joined = case.proxies.iter().map(|proxy| Ok((proxy, views.join(&proxy.node())?)));
        let members = joined.collect::<Result<_>>()?;
        Ok(Self { case, store, views, members, changes: 0 })
    }

    fn change(&mut self, object: &Value, what: &str, updates: Vec<Update>) -> Result<()> {
        if updates.is_empty() {
            return Ok(());
        }
        self.changes += 1;
        let snapshot = self.store.apply(updates);
        self.views.refresh(&snapshot, Instant::now());
        let scratch = InProcess::of(&snapshot);
        for (proxy, member) in &self.members {
            let (got, want) = (versions(member), versions(&scratch.join(proxy)?));
            let named = |(kind, name): &(TypeUrl, Arc<str>)| format!("{kind:?} {name}");
            let all = got.keys().chain(want.keys().filter(|key| !got.contains_key(*key)));
            let wrong: Vec<_> = all.filter(|key| got.get(*key) != want.get(*key)).map(named).collect();
            let meta = &object["metadata"];
            ensure!(
                wrong.is_empty(),
                "{} {}/{} {what}, and {} of {} keeps {wrong:?}",
                object["kind"],
                meta["namespace"],
                meta["name"],
                proxy.name,
                self.case.name
            );
        }
        Ok(())
    }
}

fn versions(member: &Membership) -> BTreeMap<(TypeUrl, Arc<str>), Arc<str>> {
    let of = |kind| member.class.since(kind, 0).changed.clone().into_iter().map(move |resource| (kind, resource));
    let all = KINDS.into_iter().flat_map(of);
    all.map(|(kind, resource)| ((kind, resource.name.clone()), resource.version.clone())).collect()
}

/// Nothing, if the object is not valid.
fn puts(object: &Value) -> Vec<Update> {
    parse_documents("case", &object.to_string()).objects.into_iter().map(Update::Put).collect()
}

fn deletion(object: &Value) -> Option<Update> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    let kind = Kind::from_gvk(object["apiVersion"].as_str()?, object["kind"].as_str()?)?;
    Some(Update::Delete(ObjectId { kind, namespace: text("namespace").into(), name: text("name").into() }))
}

/// The object with one field changed or removed, for each of its fields, and what was done.
fn field_edits(object: &Value) -> Vec<(String, Value)> {
    let mut pointers = Vec::new();
    collect_pointers(object, "", &mut pointers);
    let mut edits = Vec::new();
    for at in pointers {
        let mut without = object.clone();
        remove(&mut without, &at);
        edits.push((format!("has no {at}"), without));
        let mut other = object.clone();
        if let Some(scalar) = other.pointer_mut(&at)
            && let Some(changed) = changed(scalar)
        {
            let what = format!("has {changed} at {at}");
            *scalar = changed;
            edits.push((what, other));
        }
    }
    edits
}

/// At most this many, from everywhere.
fn spread(edits: &[(String, Value)], most: usize) -> impl Iterator<Item = (&str, &Value)> {
    let step = edits.len().div_ceil(most.max(1)).max(1);
    // Not the first: a whole spec is often the first to be removed.
    edits.iter().skip(step / 2).step_by(step).map(|(what, edited)| (what.as_str(), edited))
}

/// Pointers to everything below what names the object.
fn collect_pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    let mut visit = |key: &str, inner: &Value| {
        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        if !matches!(at.as_str(), "/apiVersion" | "/kind" | "/metadata" | "/metadata/name" | "/metadata/namespace") {
            out.push(at.clone());
        }
        collect_pointers(inner, &at, out);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, inner)| visit(key, inner)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, inner)| visit(&index.to_string(), inner)),
        _ => {}
    }
}

fn remove(object: &mut Value, at: &str) {
    let (parent, key) = at.rsplit_once('/').expect("a pointer has a slash");
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&key.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(items)) => drop(items.remove(key.parse().expect("an index"))),
        _ => unreachable!("the pointer was just found"),
    }
}

/// Another value that is likely to be valid in the same place; `None`: not a scalar.
fn changed(scalar: &Value) -> Option<Value> {
    match scalar {
        Value::Bool(flag) => Some(json!(!flag)),
        Value::Number(number) => number.as_i64().map(|number| json!(number + 1)),
        Value::String(text) => Some(match text.rfind(|letter: char| letter.is_ascii_digit()) {
            Some(at) => {
                let next = (text.as_bytes()[at] - b'0' + 1) % 10;
                json!(format!("{}{next}{}", &text[..at], &text[at + 1..]))
            }
            None => json!(format!("{text}x")),
        }),
        _ => None,
    }
}

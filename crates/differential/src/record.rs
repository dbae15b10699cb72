//! Cases of the parity corpus against the real istiod: what it answers now, compared with Meltemi and, if asked for, written to `expect/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};
use testkit::parity::{Case, ResourcesByType};

use crate::mesh::Mesh;
use crate::planes::Planes;

/// Ages are whole seconds, and the base is older than the case.
const OLDER: Duration = Duration::from_millis(1100);
const BASE: &str = "base-only";

/// Whether Meltemi answers alike.
pub(crate) fn case(planes: &mut Planes, folder: &Path, write: bool) -> Result<bool> {
    let mut case = Case::load(folder)?;
    let proxies: Vec<Value> = case.proxies.iter().map(|proxy| proxy.entry.clone()).collect();
    let base = case.objects.remove("base.yaml");
    let mut objects: Vec<Value> = Vec::new();
    for part in base.iter().chain(case.objects.values()) {
        objects.extend(part.iter().cloned().map(ageless));
        planes.compare(&Mesh { objects: objects.clone(), proxies: proxies.clone() })?;
        thread::sleep(OLDER);
    }
    planes.restart_istiod()?;
    let compared = planes.compare(&Mesh { objects, proxies })?;
    println!("{}: {} of {} resources equal", case.name, compared.found.same, compared.found.total);
    compared.found.differences.iter().for_each(|it| println!("  {it}"));
    if write {
        let expected = folder.join("expect");
        fs::create_dir_all(&expected)?;
        for (proxy, answer) in &compared.theirs {
            let known = folder.with_file_name(BASE).join("expect").join(format!("{proxy}.json"));
            let known = if base.is_some() && case.name != BASE && known.exists() {
                read(&known)?
            } else {
                ResourcesByType::new()
            };
            fs::write(expected.join(format!("{proxy}.json")), text(&beside(answer, &known))?)?;
        }
    }
    Ok(compared.found.equal())
}

fn ageless(mut object: Value) -> Value {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("creationTimestamp");
    }
    object
}

fn read(file: &Path) -> Result<ResourcesByType> {
    serde_json::from_slice(&fs::read(file)?).with_context(|| file.display().to_string())
}

/// What an answer has beside that to the base: changed and new resources, and under `absent` the names that are gone.
fn beside(answer: &ResourcesByType, base: &ResourcesByType) -> Value {
    let none = BTreeMap::new();
    let mut out = Map::new();
    let mut absent = Map::new();
    for kind in answer.keys().chain(base.keys()) {
        let (answer, base) = (answer.get(kind).unwrap_or(&none), base.get(kind).unwrap_or(&none));
        let own: Map<String, Value> = answer
            .iter()
            .filter(|(name, resource)| base.get(*name) != Some(resource))
            .map(|(name, resource)| (name.clone(), resource.clone()))
            .collect();
        if !own.is_empty() {
            out.insert(kind.clone(), own.into());
        }
        let gone: Vec<&String> = base.keys().filter(|name| !answer.contains_key(*name)).collect();
        if !gone.is_empty() {
            absent.insert(kind.clone(), json!(gone));
        }
    }
    if !absent.is_empty() {
        out.insert("absent".to_owned(), absent.into());
    }
    out.into()
}

/// Sorted, one space for each level.
fn text(value: &Value) -> Result<String> {
    let mut out = Vec::new();
    sorted(value).serialize(&mut Serializer::with_formatter(&mut out, PrettyFormatter::with_indent(b" ")))?;
    out.push(b'\n');
    Ok(String::from_utf8(out)?)
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            fields.into_iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_base_is_kept() {
        let of = |value: Value| -> ResourcesByType { serde_json::from_value(value).unwrap() };
        let base = of(json!({ "CDS": { "a": 1, "b": 1 }, "LDS": { "l": 1 } }));
        let answer = of(json!({ "CDS": { "a": 1, "b": 2, "c": 3 }, "LDS": {} }));
        let want = json!({ "CDS": { "b": 2, "c": 3 }, "absent": { "LDS": ["l"] } });
        assert_eq!(beside(&answer, &base), want);
        assert_eq!(
            text(&json!({ "b": [], "a": { "c": 1 } })).unwrap(),
            "{\n \"a\": {\n  \"c\": 1\n },\n \"b\": []\n}\n"
        );
    }
}

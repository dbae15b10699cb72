//! Values files of istiod's chart: what each of `tests/chart` changes in istiod's objects, it changes in ours, in both forms of such files. And
//! the notes, which name the values that mean nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use config::yaml::{Scalars, documents};
use serde_json::{Map, Value, json};
use testkit::environment;

use crate::chart::{chart, helm};
use crate::run::{as_text, folder};

/// Each is a leaf of an object: its path, and its value.
type Leaves = BTreeMap<String, Value>;

/// Values that an IstioOperator has beside `pilot`, not below it.
const BESIDE_PILOT: [&str; 6] = ["global", "meshConfig", "ownerName", "revision", "revisionTags", "telemetry"];
/// They name the chart.
const OF_THE_CHART: [&str; 2] = ["app.kubernetes.io/version", "helm.sh/chart"];

#[test]
fn a_values_file_of_istiods_chart_changes_here_what_it_changes_there() {
    let Some(istiods) = environment::istiod_chart() else {
        return testkit::skip("istiod's values: there is no chart of istiod; cargo xtask setup fetches it where Go is");
    };
    let Some(unchanged) = leaves(&istiods, &json!({})) else { return };
    let mut files = 0;
    for file in std::fs::read_dir(environment::repository().join("tests/chart")).expect("values files").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a values file");
        let values = document(&text);
        for form in [values.clone(), below_pilot(&values)] {
            let (Some(istiod), Some(ours)) = (leaves(&istiods, &form), leaves(&chart(), &form)) else { return };
            let paths: BTreeSet<&String> = unchanged.keys().chain(istiod.keys()).collect();
            let changed: Vec<_> = paths.into_iter().filter(|path| unchanged.get(*path) != istiod.get(*path)).collect();
            assert!(!changed.is_empty(), "{form} changes nothing in istiod's chart");
            for path in changed {
                assert_eq!(ours.get(path), istiod.get(path), "{path} with {form}");
            }
        }
        files += 1;
    }
    assert!(files >= 20, "{files} files");
}

/// The second form of the same values.
fn below_pilot(values: &Value) -> Value {
    let (mut top, mut pilot) = (Map::new(), Map::new());
    for (key, value) in values.as_object().expect("a mapping") {
        let place = if BESIDE_PILOT.contains(&key.as_str()) { &mut top } else { &mut pilot };
        place.insert(key.clone(), value.clone());
    }
    if !pilot.is_empty() {
        top.insert("pilot".to_owned(), pilot.into());
    }
    top.into()
}

/// What a chart makes of values, of the objects that both charts have. Names are without the revision, so that objects are found.
fn leaves(chart: &Path, values: &Value) -> Option<Leaves> {
    let dir = folder(&[("values.yaml", &values.to_string())]);
    let words = ["template", "istiod", as_text(chart), "-n", "istio-system"];
    let out = helm(&words, &[&dir.path().join("values.yaml")])?;
    assert!(out.status.success(), "{chart:?} {values}: {}", String::from_utf8_lossy(&out.stderr));
    let suffix = values["revision"].as_str().map(|revision| format!("-{revision}")).unwrap_or_default();
    let mut leaves = Leaves::new();
    for document in documents(&String::from_utf8(out.stdout).expect("UTF-8"), Scalars::Objects) {
        let mut object = document.expect("helm writes YAML").to_json();
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
        let name = name.map(|name| name.strip_suffix(&suffix).unwrap_or(name)).unwrap_or_default();
        let place = format!("{kind}/{name}");
        match kind {
            "Deployment" | "Service" | "ServiceAccount" | "HorizontalPodAutoscaler" | "PodDisruptionBudget" => {}
            "ConfigMap" if name == "istio" => {
                let texts = object["data"].as_object_mut().expect("data");
                texts.values_mut().for_each(|text| *text = self::document(text.as_str().expect("a text")));
            }
            _ => continue,
        }
        collect(&mut leaves, place, object);
    }
    leaves.retain(|path, _| !OF_THE_CHART.iter().any(|label| path.ends_with(label)));
    Some(leaves)
}

fn document(text: &str) -> Value {
    let mut all = documents(text, Scalars::Objects);
    all.next().map_or(Value::Null, |document| document.expect("YAML").to_json())
}

/// Items of a list are found by name where they have one; any other list is one leaf.
fn collect(leaves: &mut Leaves, path: String, value: Value) {
    match value {
        Value::Object(entries) => {
            entries.into_iter().for_each(|(key, it)| collect(leaves, format!("{path}/{key}"), it));
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(|item| item["name"].is_string()) => {
            for item in items {
                collect(leaves, format!("{path}/{}", item["name"].as_str().unwrap_or_default()), item);
            }
        }
        // A quantity is the same as a number and as a text.
        Value::Number(number) => {
            leaves.insert(path, number.to_string().into());
        }
        other => {
            leaves.insert(path, other);
        }
    }
}

#[test]
fn a_value_below_pilot_goes_before_the_same_at_the_top() {
    let values = json!({ "replicaCount": 2, "autoscaleEnabled": true, "pilot": { "replicaCount": 4, "autoscaleEnabled": false } });
    let Some(leaves) = leaves(&chart(), &values) else { return };
    assert_eq!(leaves["Deployment/istiod/spec/replicas"], json!("4"));
}

/// Helm prints notes only where it installs: they are rendered as an object here.
fn notes(values: &Value) -> Option<String> {
    let copy = tempfile::tempdir().expect("a folder");
    let copied = copy.path().join("meltemi");
    assert!(Command::new("cp").arg("-r").arg(chart()).arg(&copied).status().expect("cp starts").success());
    let shown = "notes: {{ include (print $.Template.BasePath \"/NOTES.txt\") . | toJson }}\n";
    std::fs::write(copied.join("templates/shown.yaml"), shown).expect("a template");
    let file: PathBuf = copy.path().join("values.yaml");
    std::fs::write(&file, values.to_string()).expect("a file");
    let words = ["template", "istiod", as_text(&copied), "-n", "istio-system", "-s", "templates/shown.yaml"];
    let out = helm(&words, &[&file])?;
    assert!(out.status.success(), "{values}: {}", String::from_utf8_lossy(&out.stderr));
    let rendered = document(&String::from_utf8(out.stdout).expect("UTF-8"));
    Some(rendered["notes"].as_str().expect("a text").to_owned())
}

#[test]
fn notes_name_only_values_that_mean_nothing() {
    let ignored = |values: Value| {
        let notes = notes(&values)?;
        let named =
            notes.lines().find_map(|line| line.strip_prefix("Values that mean nothing to Meltemi and were ignored: "));
        Some(named.unwrap_or_default().to_owned())
    };
    let Some(none) = ignored(json!({})) else { return };
    assert_eq!(none, "", "values of our own");
    let values = json!({ "istio_cni": { "enabled": true }, "pilot": { "autoscaleMin": 3, "taint": {} }, "global": { "waypoint": {} } });
    assert_eq!(ignored(values).as_deref(), Some("global.waypoint, istio_cni, pilot.taint"));
    // Every value that the schema knows, also those without a default.
    let schema = std::fs::read_to_string(chart().join("values.schema.json")).expect("the schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let missing = |properties: &Value, known: &Value| -> Map<String, Value> {
        let keys = properties.as_object().expect("properties").keys().filter(|key| known[key.as_str()].is_null());
        keys.map(|key| (key.clone(), example(&properties[key]))).collect()
    };
    let defaults = document(&std::fs::read_to_string(chart().join("values.yaml")).expect("the values"));
    let mut values = missing(&schema["properties"], &defaults);
    let global = &schema["properties"]["global"]["properties"];
    values.insert("global".to_owned(), missing(global, &defaults["global"]).into());
    assert!(values.contains_key("ownerName"), "{values:?}");
    assert_eq!(ignored(values.into()).as_deref(), Some(""));
}

fn example(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("string") => json!("x"),
        Some("array") => json!([]),
        _ => json!({}),
    }
}

#[test]
fn notes_say_that_defaults_and_profiles_of_istiods_chart_are_not_taken_over() {
    for key in ["defaults", "_internal_defaults_do_not_set"] {
        let Some(notes) = notes(&json!({ key: { "replicaCount": 7, "image": "pilot" } })) else { return };
        assert!(notes.contains(&format!("Below {key} are defaults of istiod's chart")), "{notes}");
    }
    let Some(notes) = notes(&json!({ "global": { "profile": "demo" } })) else { return };
    assert!(notes.contains("What the profile demo of istiod's chart sets is not set"), "{notes}");
}

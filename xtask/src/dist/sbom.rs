//! The list of what the program is made of, as CycloneDX JSON.

use serde_json::{Value, json};

use super::packages::{Package, Packages};

const VERSION: &str = "1.5";

/// The same packages, the same text: it has no time and no serial number.
pub(super) fn document(packages: &Packages) -> Value {
    let program = &packages.all[&packages.program];
    let others = packages.all.iter().filter(|(reference, _)| **reference != packages.program);
    let components: Vec<Value> = others.map(|(reference, package)| component(reference, package, "library")).collect();
    let uses = packages.all.iter().map(|(reference, package)| json!({ "ref": reference, "dependsOn": package.uses }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "version": 1,
        "metadata": { "component": component(&packages.program, program, "application") },
        "components": components,
        "dependencies": uses.collect::<Vec<_>>(),
    })
}

fn component(reference: &str, package: &Package, kind: &str) -> Value {
    let mut out = json!({
        "type": kind, "bom-ref": reference, "purl": reference, "name": package.name, "version": package.version,
    });
    if !package.licence.is_empty() {
        out["licenses"] = json!([{ "expression": package.licence }]);
    }
    if let Some(checksum) = &package.checksum {
        out["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_is_referred_to_and_has_a_licence() {
        let packages = Packages::of_meltemi().unwrap();
        let sbom = document(&packages);
        assert_eq!(sbom["metadata"]["component"]["name"], "meltemi");
        let components = sbom["components"].as_array().unwrap();
        assert!(components.len() > 100, "{}", components.len());
        for component in components {
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
            let foreign = packages.all[component["bom-ref"].as_str().unwrap()].is_foreign;
            assert_eq!(component["hashes"][0]["content"].is_string(), foreign, "{component}");
        }
        let names: Vec<&str> = components.iter().filter_map(|it| it["name"].as_str()).collect();
        assert!(names.contains(&"tokio") && !names.contains(&"testkit") && !names.contains(&"proptest"));
        let known = |it: &Value| packages.all.contains_key(it.as_str().unwrap());
        let dependencies = sbom["dependencies"].as_array().unwrap();
        assert!(dependencies.iter().all(|it| it["dependsOn"].as_array().unwrap().iter().all(known)));
    }
}

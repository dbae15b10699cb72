//! Every input of the parity corpus is read in full: no field and no value of it is unknown to us, and no object is left out, not even
//! those that istiod's webhook would refuse (the corpus was recorded without it).

use std::fs;
use std::path::Path;

use config::mesh::MeshConfig;
use config::note::Note;
use config::object::{AnyObject, parse_documents};

#[test]
fn every_case_is_read_in_full() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
    let inputs = fs::read_dir(&corpus).expect("the corpus is part of the project");
    let inputs =
        inputs.map(|case| case.expect("a folder can be listed").path().join("in.yaml")).filter(|path| path.exists());
    let mut notes = Vec::new();
    let (mut cases, mut objects) = (0, 0);
    for input in inputs {
        let text = fs::read_to_string(&input).expect("an input is text");
        let parsed = parse_documents(&input.to_string_lossy(), &text);
        cases += 1;
        objects += parsed.objects.len();
        assert_eq!(parsed.refused, [], "{}", input.display());
        notes.extend(parsed.notes.into_iter().filter(|note| note.what.contains("unknown")));
        notes.extend(parsed.objects.iter().flat_map(mesh_notes));
    }
    let lines = notes.iter().map(Note::to_string).collect::<Vec<_>>();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
    assert!(cases > 100 && objects > cases, "{cases} cases, {objects} objects");
}

fn mesh_notes(object: &AnyObject) -> Vec<Note> {
    let AnyObject::ConfigMap(map) = object else { return Vec::new() };
    let text = map.spec.data.get("mesh").map_or("", String::as_str);
    MeshConfig::parse(text, &format!("{}/{}", map.meta.namespace, map.meta.name))
        .map_or_else(|notes| notes, |(_, notes)| notes)
}

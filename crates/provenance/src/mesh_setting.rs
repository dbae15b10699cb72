//! Fields of the mesh config that are causes: those that differ from the default, each set back to it.

use config::mesh::MeshConfig;
use config::ser::to_json;
use serde_json::Value;

use crate::experiment::{Effect, Experiment};
use crate::search::FieldCause;

/// Named as in the mesh config: `connectTimeout`.
pub(crate) fn causes(experiment: &Experiment<'_>, config: &MeshConfig) -> Vec<FieldCause> {
    let (set, default) = (to_json(config), to_json(&MeshConfig::default()));
    if parsed(&set).as_ref() != Some(config) {
        return Vec::new();
    }
    let fields = set.as_object().into_iter().flatten();
    let tried = fields.filter(|(key, value)| default.get(key) != Some(value)).filter_map(|(key, _)| {
        let mut varied = set.clone();
        match default.get(key) {
            Some(value) => varied[key] = value.clone(),
            None => drop(varied.as_object_mut()?.remove(key)),
        }
        let effect = experiment.with_mesh_config(parsed(&varied)?);
        (effect != Effect::Same).then(|| FieldCause { field: key.clone(), effect })
    });
    tried.collect()
}

fn parsed(json: &Value) -> Option<MeshConfig> {
    MeshConfig::parse(&json.to_string(), "").ok().map(|(config, _)| config)
}

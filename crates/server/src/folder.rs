//! A folder that is read once into a store. Which proxies its Pods imply is the program's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{MeshText, Name, Snapshot, Store, StoreOptions, Update};
use sources::files::{Folder, Scan};

use crate::pipeline::RevisionMeshConfig;
use crate::settings::{MESH_CONFIG_MAP, MeshSettings};

/// A folder, and the store with its objects.
pub struct LoadedFolder {
    pub(crate) folder: Folder,
    pub store: Store,
    /// The number of objects of each kind.
    pub objects: BTreeMap<Kind, usize>,
    pub files: usize,
    pub(crate) mesh_config: MeshConfigSource,
}

/// Where the mesh config comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MeshConfigSource {
    File(MeshText),
    ConfigMap(Name),
    /// There is no such ConfigMap.
    Defaults(Name),
}

impl MeshConfigSource {
    /// `given`: the text of a file, which takes precedence over the ConfigMap `map`.
    pub(crate) fn new(given: Option<MeshText>, map: Name, snapshot: &Snapshot) -> MeshConfigSource {
        // The store has the ConfigMap of a revision under the name of that without one.
        let stored = Name::new(&map.namespace, MESH_CONFIG_MAP);
        match given {
            Some(text) => MeshConfigSource::File(text),
            None if snapshot.config_maps.contains_key(&stored) => MeshConfigSource::ConfigMap(map),
            None => MeshConfigSource::Defaults(map),
        }
    }
}

pub fn load(dir: &Path, mesh: &MeshSettings) -> Result<LoadedFolder> {
    load_observed(dir, mesh, |_| ())
}

/// The first scan. An unreadable folder is not an empty mesh: serving it would remove the configuration of every proxy.
pub(crate) fn first_scan(folder: &mut Folder, dir: &Path) -> Result<Scan> {
    std::fs::read_dir(dir).with_context(|| format!("cannot read the folder {}", dir.display()))?;
    let scan = folder.scan();
    if !scan.readable {
        bail!("{}", first_error(&scan.updates));
    }
    Ok(scan)
}

/// `observe` gets the updates of the first scan.
pub(crate) fn load_observed(dir: &Path, mesh: &MeshSettings, observe: impl FnOnce(&[Update])) -> Result<LoadedFolder> {
    let mut folder = Folder::open(dir);
    let scan = first_scan(&mut folder, dir)?;
    let (mut store, given) = store(mesh)?;
    observe(&scan.updates);
    let objects = object_counts(&scan.updates);
    let map = Name::new(&mesh.pod_namespace, MESH_CONFIG_MAP);
    let updates = RevisionMeshConfig::of(mesh).apply(scan.updates);
    let mesh_config = MeshConfigSource::new(given, map, &store.apply(updates));
    Ok(LoadedFolder { folder, store, objects, files: scan.files, mesh_config })
}

/// Objects that were read elsewhere, as a folder of them would be loaded. `text`: YAML or JSON documents.
pub fn load_text(text: &str, mesh: &MeshSettings) -> Result<Arc<Snapshot>> {
    let (mut store, _) = store(mesh)?;
    let updates = parse_documents("objects", text).objects.into_iter().map(Update::Put).collect();
    Ok(store.apply(RevisionMeshConfig::of(mesh).apply(updates)))
}

/// An empty store, and the text of the mesh config file, which takes precedence over the ConfigMap.
pub(crate) fn store(mesh: &MeshSettings) -> Result<(Store, Option<MeshText>)> {
    let given = given_mesh_config(mesh)?;
    let options = StoreOptions { pod_namespace: mesh.pod_namespace.clone(), mesh_config: given.clone() };
    Ok((Store::new(options), given))
}

/// The text of the mesh config file. `None`: the mesh config is in a ConfigMap.
pub(crate) fn given_mesh_config(mesh: &MeshSettings) -> Result<Option<MeshText>> {
    mesh.mesh_config.as_deref().map(mesh_text).transpose()
}

fn mesh_text(file: &Path) -> Result<MeshText> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the mesh config {}", file.display()))?;
    Ok(MeshText { file: file.display().to_string(), text })
}

fn first_error(updates: &[Update]) -> String {
    let diagnostics = updates.iter().find_map(|update| match update {
        Update::Diagnostics { diagnostics, .. } => diagnostics.first(),
        _ => None,
    });
    diagnostics.map_or_else(|| "the folder cannot be read".to_owned(), |diagnostic| diagnostic.what.clone())
}

fn object_counts(updates: &[Update]) -> BTreeMap<Kind, usize> {
    let mut objects = BTreeMap::new();
    for update in updates {
        if let Update::Put(object) = update {
            *objects.entry(object.kind()).or_default() += 1;
        }
    }
    objects
}

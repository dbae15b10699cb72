//! A folder read once, for the commands that need no server, and the proxies that its Pods imply.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::kind::Kind;
use config::kinds::pod::Pod;
use config::meta::{Meta, Object};
use config::store::{MeshText, Name, Snapshot, Store, StoreOptions, Update};
use model::ProxyKind;
use sources::files::Folder;

use crate::args::ProxyType;
use crate::settings::Mesh;

/// The ConfigMap of the mesh config.
pub(crate) const MESH_MAP: &str = "istio";

/// A folder, and the store that holds what it gave.
pub(crate) struct Loaded {
    pub(crate) folder: Folder,
    pub(crate) store: Store,
    /// What the first look gave.
    pub(crate) objects: BTreeMap<Kind, usize>,
    pub(crate) files: usize,
    pub(crate) mesh_config: MeshSource,
}

/// Where the mesh configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MeshSource {
    File(MeshText),
    ConfigMap,
    Defaults,
}

impl MeshSource {
    /// `given`: what a file says, which goes before the ConfigMap `map`.
    pub(crate) fn new(given: Option<MeshText>, map: &Name, snapshot: &Snapshot) -> MeshSource {
        match given {
            Some(text) => MeshSource::File(text),
            None if snapshot.config_maps.contains_key(map) => MeshSource::ConfigMap,
            None => MeshSource::Defaults,
        }
    }
}

pub(crate) fn load(dir: &Path, mesh: &Mesh) -> Result<Loaded> {
    load_seen(dir, mesh, |_| ())
}

/// `see` gets the updates that make the first picture.
pub(crate) fn load_seen(dir: &Path, mesh: &Mesh, see: impl FnOnce(&[Update])) -> Result<Loaded> {
    std::fs::read_dir(dir).with_context(|| format!("cannot read the folder {}", dir.display()))?;
    let (mut store, given) = store(mesh)?;
    let mut folder = Folder::open(dir);
    let scan = folder.scan();
    if !scan.readable {
        // Nothing at all is not the same as an empty mesh: serving it would take everything from the proxies.
        bail!("{}", first_note(&scan.updates));
    }
    see(&scan.updates);
    let objects = counted(&scan.updates);
    let map = Name::new(&mesh.pod_namespace, MESH_MAP);
    let mesh_config = MeshSource::new(given, &map, &store.apply(scan.updates));
    Ok(Loaded { folder, store, objects, files: scan.files, mesh_config })
}

/// An empty store, and the mesh config that goes before a ConfigMap's.
pub(crate) fn store(mesh: &Mesh) -> Result<(Store, Option<MeshText>)> {
    let given = mesh.mesh_config.as_deref().map(mesh_text).transpose()?;
    let options = StoreOptions { pod_namespace: mesh.pod_namespace.clone(), mesh_config: given.clone() };
    Ok((Store::new(options), given))
}

fn mesh_text(file: &Path) -> Result<MeshText> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the mesh config {}", file.display()))?;
    Ok(MeshText { file: file.display().to_string(), text })
}

fn first_note(updates: &[Update]) -> String {
    let notes = updates.iter().find_map(|update| match update {
        Update::Notes { notes, .. } => notes.first(),
        _ => None,
    });
    notes.map_or_else(|| "the folder cannot be read".to_owned(), |note| note.what.clone())
}

fn counted(updates: &[Update]) -> BTreeMap<Kind, usize> {
    let mut objects = BTreeMap::new();
    for update in updates {
        if let Update::Put(object) = update {
            *objects.entry(object.kind()).or_default() += 1;
        }
    }
    objects
}

/// A Pod as it is named on the command line: `pod.namespace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodName(pub(crate) Name);

impl FromStr for PodName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<PodName> {
        // Names of pods may have dots, names of namespaces may not.
        match text.rsplit_once('.') {
            Some((name, namespace)) if !name.is_empty() && !namespace.is_empty() => {
                Ok(PodName(Name::new(namespace, name)))
            }
            _ => bail!("--proxy {text:?} does not name a proxy; write it as POD.NAMESPACE"),
        }
    }
}

/// The Pod of that name, or an error that names some that there are.
pub(crate) fn pod<'a>(snapshot: &'a Snapshot, PodName(name): &PodName) -> Result<&'a Arc<Object<Pod>>> {
    const SHOWN: usize = 8;
    if let Some(pod) = snapshot.pods.get(name) {
        return Ok(pod);
    }
    let known: Vec<String> =
        snapshot.pods.keys().take(SHOWN).map(|it| format!("{}.{}", it.name, it.namespace)).collect();
    let known = match (known.len(), snapshot.pods.len()) {
        (0, _) => "there are no Pods".to_owned(),
        (shown, all) if shown < all => format!("there are {} and {} others", known.join(", "), all - shown),
        _ => format!("there are {}", known.join(", ")),
    };
    bail!("the folder has no Pod {} in namespace {}; {known}", name.name, name.namespace)
}

/// Pods that are injected with the template `gateway` run a router.
pub(crate) fn proxy_kind(asked: Option<ProxyType>, pod: &Meta) -> ProxyKind {
    let templates = pod.annotations.get("inject.istio.io/templates").unwrap_or_default();
    match asked {
        Some(ProxyType::Router) => ProxyKind::Router,
        Some(ProxyType::Sidecar) => ProxyKind::Sidecar,
        None if templates.split(',').any(|template| template.trim() == "gateway") => ProxyKind::Router,
        None => ProxyKind::Sidecar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_may_have_dots() {
        assert_eq!("a.b.shop".parse::<PodName>().unwrap(), PodName(Name::new("shop", "a.b")));
        for wrong in ["cart", ".shop", "cart.", ""] {
            assert!(wrong.parse::<PodName>().unwrap_err().to_string().contains("POD.NAMESPACE"), "{wrong}");
        }
    }

    #[test]
    fn a_gateways_pod_runs_a_router_unless_told_otherwise() {
        let mut meta = Meta::default();
        assert_eq!(proxy_kind(None, &meta), ProxyKind::Sidecar);
        meta.annotations.insert("inject.istio.io/templates", "custom, gateway");
        assert_eq!(proxy_kind(None, &meta), ProxyKind::Router);
        assert_eq!(proxy_kind(Some(ProxyType::Sidecar), &meta), ProxyKind::Sidecar);
    }
}

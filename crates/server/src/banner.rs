//! The summary that is printed when the server is ready: at most fifteen lines.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use config::diagnostic::Severity;
use config::kind::Kind;
use config::object::UnreadObjects;
use config::store::{MeshText, Name, Snapshot};

use crate::folder::{LoadedFolder, MeshConfigSource};
use crate::settings::MeshSettings;
use crate::version;

pub(crate) struct Banner<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) mesh: &'a MeshSettings,
    pub(crate) found: Found,
    pub(crate) open: Vec<OpenPort>,
    pub(crate) off: Vec<ClosedPort>,
    pub(crate) took: Duration,
}

/// Where the objects come from.
pub(crate) enum Origin {
    Folder(PathBuf),
    /// Its URL.
    ApiServer(String),
}

/// The result of the first load.
pub(crate) struct Found {
    objects: Vec<(&'static str, usize)>,
    /// `None`: the source has no files.
    files: Option<usize>,
    errors: usize,
    warnings: usize,
    mesh_config: MeshConfigSource,
    unread: UnreadObjects,
}

/// A port that is served.
pub(crate) struct OpenPort {
    pub(crate) address: SocketAddr,
    pub(crate) flag: &'static str,
    pub(crate) what: &'static str,
}

/// A port that is not.
pub(crate) struct ClosedPort {
    pub(crate) flag: &'static str,
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
}

impl Found {
    pub(crate) fn new(loaded: &LoadedFolder, snapshot: &Snapshot) -> Found {
        let unread = UnreadObjects::extract(&mut snapshot.diagnostics.clone());
        let found = Found::in_cluster(&loaded.objects, loaded.mesh_config.clone(), unread, snapshot);
        Found { files: Some(loaded.files), ..found }
    }

    pub(crate) fn in_cluster(
        objects: &BTreeMap<Kind, usize>,
        mesh_config: MeshConfigSource,
        unread: UnreadObjects,
        snapshot: &Snapshot,
    ) -> Found {
        let count = |severity| snapshot.diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
        Found {
            objects: objects
                .iter()
                .map(|(kind, count)| (kind.name(), *count))
                .filter(|(_, count)| *count > 0)
                .collect(),
            files: None,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            mesh_config,
            unread,
        }
    }

    /// The mesh config that came from a file.
    pub(crate) fn mesh_text(&self) -> Option<&MeshText> {
        match &self.mesh_config {
            MeshConfigSource::File(text) => Some(text),
            MeshConfigSource::ConfigMap(_) | MeshConfigSource::Defaults(_) => None,
        }
    }
}

impl fmt::Display for Banner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Banner { origin, mesh, found, open, off, took } = self;
        writeln!(f, "meltemi {} (revision {})", version::VERSION, version::REVISION)?;
        writeln!(f, "mode   {origin}, cluster {}, domain {}", mesh.cluster_id, mesh.domain)?;
        writeln!(f, "mesh   {}", self.mesh_source())?;
        let total: usize = found.objects.iter().map(|(_, count)| count).sum();
        write!(f, "found  {total} objects")?;
        if let Some(files) = found.files {
            write!(f, " in {files} files")?;
        }
        for (index, (kind, count)) in found.objects.iter().enumerate() {
            write!(f, "{} {count} {kind}", if index == 0 { ":" } else { "," })?;
        }
        writeln!(f)?;
        writeln!(f, "notes  {} errors, {} warnings{}", found.errors, found.warnings, self.hint())?;
        if !found.unread.is_empty() {
            writeln!(f, "unread {} of the Gateway API, which is not supported", found.unread.counts())?;
        }
        for OpenPort { address, flag, what } in open {
            writeln!(f, "port   {address} {what} ({flag})")?;
        }
        for ClosedPort { flag, what, why } in off {
            writeln!(f, "off    {what} ({flag}): {why}")?;
        }
        writeln!(f, "ready  after {} ms", took.as_millis())
    }
}

impl Banner<'_> {
    fn mesh_source(&self) -> String {
        match &self.found.mesh_config {
            MeshConfigSource::File(text) => format!("{}, followed", text.file),
            MeshConfigSource::ConfigMap(Name { namespace, name }) => format!("ConfigMap {namespace}/{name}"),
            MeshConfigSource::Defaults(Name { namespace, name }) => {
                format!("defaults (no ConfigMap {namespace}/{name}, no --meshConfig)")
            }
        }
    }

    fn hint(&self) -> String {
        if self.found.errors + self.found.warnings == 0 {
            return String::new();
        }
        match self.origin {
            Origin::Folder(folder) => format!("; `meltemi check {}` lists them", folder.display()),
            Origin::ApiServer(_) => "; the log lists them".to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Folder(folder) => write!(f, "folder {}", folder.display()),
            Origin::ApiServer(url) => write!(f, "API server {url}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_lines_are_enough_for_every_port_and_name_the_mesh_config_of_the_revision() {
        let mesh = MeshSettings {
            mesh_config: None,
            domain: "cluster.local".into(),
            cluster_id: "Kubernetes".into(),
            pod_namespace: "istio-system".into(),
            revision: String::new(),
            derive_endpoints: false,
            trace_sampling: model::Percentage(1.0),
            variables: model::Variables::default(),
            ingress_namespace: "istio-system".into(),
            scope_gateways_to_namespace: false,
            filter_gateway_clusters: false,
            multiple_authorizers: false,
            addresses: model::AddressRanges::default(),
        };
        let mut unread = UnreadObjects::default();
        unread.insert("HTTPRoute", "shop/web".to_owned());
        let banner = Banner {
            origin: &Origin::Folder("mesh".into()),
            mesh: &mesh,
            found: Found {
                objects: vec![("Pod", 3), ("Service", 2)],
                files: Some(4),
                errors: 1,
                warnings: 0,
                mesh_config: MeshConfigSource::Defaults(Name::new("istio-system", "istio-canary")),
                unread,
            },
            open: (1..4)
                .map(|port| OpenPort { address: ([127, 0, 0, 1], port).into(), flag: "--x", what: "x" })
                .collect(),
            off: (1..3).map(|_| ClosedPort { flag: "--y", what: "y", why: "z" }).collect(),
            took: Duration::from_millis(12),
        };
        let text = banner.to_string();
        assert!(text.lines().count() <= 15, "{text}");
        assert!(text.contains("found  5 objects in 4 files: 3 Pod, 2 Service\n"), "{text}");
        assert!(text.contains("notes  1 errors, 0 warnings; `meltemi check mesh` lists them\n"), "{text}");
        assert!(text.contains("unread 1 HTTPRoute of the Gateway API, which is not supported\n"), "{text}");
        assert!(text.contains("off    y (--y): z\n"), "{text}");
        assert!(text.contains("mesh   defaults (no ConfigMap istio-system/istio-canary, no --meshConfig)\n"), "{text}");
    }
}

//! The installations of the corpus, as the crate takes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use inject::{ControlPlane, Injector, NativeSidecars};
use serde_json::Value as Json;
use testkit::injection::Installation;

pub(crate) struct Setup {
    pub(crate) injector: Injector,
    pub(crate) plane: ControlPlane,
    pub(crate) objects: Arc<Snapshot>,
}

impl Setup {
    pub(crate) fn load(name: &str) -> Setup {
        let installation = Installation::load(name);
        let data = BTreeMap::from([
            ("config".to_owned(), installation.config.to_string()),
            ("values".to_owned(), installation.values.to_string()),
        ]);
        let Installation { revision, .. } = &installation;
        Setup {
            injector: Injector::parse(&data).unwrap_or_else(|error| panic!("{name}: {error}")),
            plane: ControlPlane {
                revision: if revision.is_empty() { "default".to_owned() } else { revision.clone() },
                native_sidecars: NativeSidecars::parse(installation.env("ENABLE_NATIVE_SIDECARS").unwrap_or("auto")),
                openshift: installation.env("PLATFORM") == Some("openshift"),
                compliance_policy: installation.env("COMPLIANCE_POLICY").unwrap_or_default().to_owned(),
                cluster_id: "Kubernetes".to_owned(),
            },
            objects: objects(&installation),
        }
    }
}

fn objects(installation: &Installation) -> Arc<Snapshot> {
    let map = installation.mesh_config_map();
    let text: Vec<String> = installation.objects.iter().chain([&map]).map(Json::to_string).collect();
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let found = parse_documents("setup", &text.join("\n---\n"));
    let objects = store.apply(found.objects.into_iter().map(Update::Put).collect());
    assert!(
        objects.diagnostics.iter().all(|it| it.severity != config::diagnostic::Severity::Error),
        "{:?}",
        objects.diagnostics
    );
    objects
}

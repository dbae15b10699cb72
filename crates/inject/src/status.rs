//! The annotation that says what an injection added: `istioctl` and a second injection read it.

use serde_json::{Value as Json, json};

use crate::pod::{ContainerList, Pod, name_of};

pub(crate) const STATUS: &str = "sidecar.istio.io/status";

/// The containers of an earlier injection, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InjectionStatus {
    containers: Vec<String>,
    init_containers: Vec<String>,
}

impl InjectionStatus {
    /// An unreadable one names nothing.
    pub(crate) fn parse(text: &str) -> InjectionStatus {
        let json: Json = serde_json::from_str(text).unwrap_or_default();
        let names = |list: ContainerList| {
            let names = json[list.key()].as_array().into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        InjectionStatus {
            containers: names(ContainerList::Containers),
            init_containers: names(ContainerList::InitContainers),
        }
    }

    pub(crate) fn names(&self, list: ContainerList, name: &str) -> bool {
        match list {
            ContainerList::Containers => &self.containers,
            ContainerList::InitContainers => &self.init_containers,
        }
        .iter()
        .any(|known| known == name)
    }
}

/// The annotation for what the templates gave.
pub(crate) fn status_text(template: &Pod, revision: &str) -> String {
    let names = |key: &str| {
        let items = template.spec()[key].as_array().filter(|items| !items.is_empty());
        items.map_or(Json::Null, |items| items.iter().map(name_of).collect())
    };
    json!({
        "initContainers": names("initContainers"),
        "containers": names("containers"),
        "volumes": names("volumes"),
        "imagePullSecrets": names("imagePullSecrets"),
        "revision": if revision.is_empty() { "default" } else { revision },
    })
    .to_string()
}

//! One injection: a pod and the installation in, a JSON patch or an error out. The steps and their order are istiod's.

use std::collections::BTreeMap;

use config::ser::to_json;
use config::store::{Name, Snapshot};
use serde_json::{Map, Value as Json};

use crate::annotation::check_annotations;
use crate::data::Data;
use crate::decision::{Reason, decide, invalid_value};
use crate::fault::{Fault, faults};
use crate::image::proxy_image;
use crate::injector_config::{ConfigError, InjectorConfig};
use crate::json_patch::json_patch;
use crate::native::NativeSidecars;
use crate::openshift::{self, DEFAULT_ID};
use crate::overlay::{Overlaid, overlay};
use crate::owner::OwnerWorkload;
use crate::path::{self, CLUSTER, NETWORK};
use crate::pod::{ContainerList, Pod, env_mut, name_of};
use crate::values::Values;
use crate::{order, overrides, probes, prometheus, proxy_config, status};

const NETWORK_LABEL: &str = "topology.istio.io/network";
const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";

/// The injector's ConfigMap, parsed.
#[derive(Debug)]
pub struct Injector {
    pub config: InjectorConfig,
    pub values: Values,
}

impl Injector {
    /// `data`: of the ConfigMap.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Injector, ConfigError> {
        let text = |key: &'static str| data.get(key).ok_or(ConfigError::NoKey(key));
        Ok(Injector { config: InjectorConfig::parse(text("config")?)?, values: Values::parse(text("values")?)? })
    }
}

/// What the control plane is, besides its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    /// REVISION. Empty: none.
    pub revision: String,
    pub native_sidecars: NativeSidecars,
    /// PLATFORM=openshift.
    pub openshift: bool,
    /// COMPLIANCE_POLICY.
    pub compliance_policy: String,
    /// CLUSTER_ID.
    pub cluster_id: String,
}

/// What became of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum InjectionOutcome {
    Skipped(Reason),
    Injected {
        /// A JSON patch, as text.
        patch: String,
        /// The pod with the patch applied.
        pod: Json,
        reason: Reason,
    },
}

/// An outcome, or the text by which the pod is refused, with the name of the pod for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// `namespace/name`; empty if the object is no pod.
    pub pod: String,
    pub outcome: Result<InjectionOutcome, String>,
    /// Settings that were passed over.
    pub warnings: Vec<String>,
    pub faults: Vec<Fault>,
}

impl Injection {
    fn rejected(pod: String, error: String) -> Injection {
        Injection { pod, outcome: Err(error), warnings: Vec::new(), faults: Vec::new() }
    }
}

/// A pod as the webhook gets it.
#[derive(Debug)]
pub struct Request<'a> {
    pub pod: Json,
    /// Of the request: the pod may have none yet.
    pub namespace: &'a str,
    /// Of the URL.
    pub path: &'a str,
    /// `None`: what the pod's controller implies.
    pub workload: Option<OwnerWorkload>,
}

impl Injector {
    pub fn inject(&self, request: Request<'_>, plane: &ControlPlane, objects: &Snapshot) -> Injection {
        if request.pod.is_null() {
            return Injection::rejected(String::new(), "unexpected end of JSON input".to_owned());
        }
        let mut pod = match Pod::typed(request.pod) {
            Ok(pod) => pod,
            Err(error) => return Injection::rejected(String::new(), error),
        };
        pod.drop_managed_fields();
        if pod.meta("namespace").is_empty() && !request.namespace.is_empty() {
            pod.set_namespace(request.namespace);
        }
        let mut injection = Injection::rejected(pod.display_name(), String::new());
        if let Some(value) = invalid_value(&pod) {
            injection.warnings.push(format!("sidecar.istio.io/inject is {value:?}, which is neither true nor false"));
        }
        let (wanted, reason) = decide(&pod, &self.config);
        injection.outcome = if wanted {
            let workload = request.workload.unwrap_or_else(|| OwnerWorkload::of(&pod));
            let variables = variables(&self.values, &pod, request.path);
            let run = Run::new(self, plane, objects, &pod, (workload, variables));
            run.result(pod).map(|(patch, result)| {
                injection.faults = faults(&result);
                InjectionOutcome::Injected { patch, pod: result.into_json(), reason }
            })
        } else {
            Ok(InjectionOutcome::Skipped(reason))
        };
        injection
    }
}

/// What the steps share.
struct Run<'a> {
    injector: &'a Injector,
    plane: &'a ControlPlane,
    objects: &'a Snapshot,
    proxy_config: Map<String, Json>,
    native: bool,
    workload: OwnerWorkload,
    /// Environment variables of the proxy by cluster, network and URL.
    variables: BTreeMap<String, String>,
    own_cluster: bool,
}

impl<'a> Run<'a> {
    fn new(
        injector: &'a Injector,
        plane: &'a ControlPlane,
        objects: &'a Snapshot,
        pod: &Pod,
        (workload, variables): (OwnerWorkload, BTreeMap<String, String>),
    ) -> Run<'a> {
        let cluster = variables.get(CLUSTER).map_or("Kubernetes", String::as_str);
        let own_cluster = cluster == plane.cluster_id;
        Run {
            proxy_config: proxy_config::effective(pod, objects),
            native: plane.native_sidecars.applies(pod, objects, own_cluster),
            injector,
            plane,
            objects,
            workload,
            variables,
            own_cluster,
        }
    }

    fn mesh_status_port(&self) -> i64 {
        i64::from(self.objects.mesh.default_config.status_port.unwrap_or_default())
    }

    /// The patch and the pod with it applied.
    fn result(&self, mut pod: Pod) -> Result<(String, Pod), String> {
        let original = pod.json().clone();
        if self.plane.openshift {
            openshift::reset_assigned_user(&mut pod);
        }
        let failed = |error: String| format!("failed to run injection template: {error}");
        check_annotations(&pod).map_err(failed)?;
        let data = self.data(&pod).map_err(failed)?;
        let overlaid = overlay(&pod, &self.injector.config, &data, self.native).map_err(failed)?;
        let Overlaid { pod: merged, template } = overlaid;
        let mut result = overrides::reapply(merged, &pod, &template)
            .map_err(|error| format!("failed to re apply container: {error}"))?;
        let tproxy = self.is_tproxy(&result);
        overrides::adjust_user(&mut result, &pod, tproxy);
        self.finish(&mut result, &pod, &template);
        let patch = serde_json::to_string(&json_patch(&original, result.json()));
        Ok((patch.expect("JSON values have string keys"), result))
    }

    /// The data of templates: of the pod as it was before an earlier injection.
    fn data(&self, pod: &Pod) -> Result<crate::template::Value, String> {
        let mut written = pod.clone();
        if let Some(text) =
            pod.annotation(status::STATUS).filter(|text| serde_json::from_str::<Map<String, Json>>(text).is_ok())
        {
            let earlier = status::InjectionStatus::parse(text);
            for list in [ContainerList::Containers, ContainerList::InitContainers] {
                if !written.containers(list).is_empty() {
                    written.containers_mut(list).retain(|container| !earlier.names(list, name_of(container)));
                }
            }
            prometheus::clear_own(&mut written, self.mesh_status_port());
            written.annotations_mut().remove(status::STATUS);
        }
        overrides::reinsert(&mut written)?;
        let data = Data {
            workload: self.workload.clone(),
            namespace: pod.meta("namespace"),
            proxy_config: &self.proxy_config,
            mesh: to_json(&*self.objects.mesh),
            values: self.injector.values.json(),
            revision: &self.plane.revision,
            native_sidecars: self.native,
            proxy_image: proxy_image(&self.injector.values, &self.proxy_config, &written),
            proxy_ids: self.proxy_ids(pod),
            compliance_policy: &self.plane.compliance_policy,
        };
        Ok(data.value(&written))
    }

    fn proxy_ids(&self, pod: &Pod) -> (i64, i64) {
        let namespace = self.objects.namespaces.get(&Name::new("", pod.meta("namespace")));
        match namespace.filter(|_| self.plane.openshift && self.own_cluster) {
            Some(namespace) => openshift::proxy_ids(|name| namespace.meta.annotations.get(name)),
            None => (DEFAULT_ID, DEFAULT_ID),
        }
    }

    fn is_tproxy(&self, pod: &Pod) -> bool {
        self.proxy_config.get("interceptionMode").is_some_and(|mode| mode == "TPROXY")
            || pod.annotation(INTERCEPTION_MODE) == Some("TPROXY")
    }

    /// What templates cannot do.
    fn finish(&self, result: &mut Pod, original: &Pod, template: &Pod) {
        let mesh = &self.objects.mesh;
        self.set_variables(result);
        prometheus::merge(result, mesh.enable_prometheus_merge, self.mesh_status_port());
        probes::rewrite(result, self.injector.values.rewrite_probes, self.mesh_status_port());
        if let Some(network) = self.variables.get(NETWORK) {
            result.set_label(NETWORK_LABEL, network);
        }
        result.set_annotation(status::STATUS, &status::status_text(template, &self.plane.revision));
        for (name, value) in &self.injector.config.injected_annotations {
            result.set_annotation(name, value);
        }
        let hold =
            self.injector.values.hold_application || proxy_config::holds_application(original, &mesh.default_config);
        order::reorder(result, hold);
    }

    /// They replace variables of the same names, and stand at the end.
    fn set_variables(&self, pod: &mut Pod) {
        if self.variables.is_empty() {
            return;
        }
        let Some(sidecar) = pod.sidecar_mut() else { return };
        let env = env_mut(sidecar);
        env.retain(|variable| !self.variables.contains_key(name_of(variable)));
        env.extend(self.variables.iter().map(|(name, value)| match value.as_str() {
            "" => serde_json::json!({ "name": name }),
            value => serde_json::json!({ "name": name, "value": value }),
        }));
    }
}

/// Cluster and network of the values, then of the URL, then (the network) of the pod's label; and what else the URL sets.
fn variables(values: &Values, pod: &Pod, path: &str) -> BTreeMap<String, String> {
    let mut variables = path::variables(path);
    for (name, default) in [(CLUSTER, &values.cluster), (NETWORK, &values.network)] {
        let unset = variables.get(name).is_none_or(String::is_empty);
        if unset && !default.is_empty() {
            variables.insert(name.to_owned(), default.clone());
        }
    }
    if let Some(network) = pod.label(NETWORK_LABEL).filter(|network| !network.is_empty()) {
        variables.insert(NETWORK.to_owned(), network.to_owned());
    }
    variables
}

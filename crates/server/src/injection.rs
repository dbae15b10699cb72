//! The injector of a running server: its ConfigMap, followed live, and the answer to each review. What injection does is in the crate
//! `inject`; HTTP is in `webhook::injection`.

use std::sync::{Arc, Mutex, PoisonError};

use config::kinds::config_map::ConfigMap;
use config::meta::Object;
use config::store::{Name, Snapshot};
use inject::{ControlPlane, Injection, InjectionOutcome, Injector, Request, Review};
use serde_json::Value;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::metrics::{CurrentObjects, InjectionMetrics};

/// istiod's name of the ConfigMap.
const CONFIG_MAP: &str = "istio-sidecar-injector";

pub struct InjectionService {
    plane: ControlPlane,
    config_map: Name,
    objects: Arc<CurrentObjects>,
    pub(crate) metrics: InjectionMetrics,
    state: Mutex<InjectorState>,
}

/// The ConfigMap as it was last seen, and what is in use.
#[derive(Default)]
struct InjectorState {
    /// `None`: there is no ConfigMap.
    seen: Option<Arc<Object<ConfigMap>>>,
    /// The last valid one. `None`: there was none yet.
    injector: Option<Arc<Injector>>,
    /// Why the ConfigMap that was last seen is not in use.
    problem: Option<String>,
}

/// For `/debug/inject`.
pub struct InjectorReport {
    pub config_map: String,
    pub problem: Option<String>,
    /// The templates in use.
    pub templates: Vec<(String, String)>,
}

impl InjectionService {
    pub(crate) fn new(
        plane: ControlPlane,
        namespace: &str,
        objects: Arc<CurrentObjects>,
        metrics: InjectionMetrics,
    ) -> InjectionService {
        let config_map = Name::new(namespace, &injector_config_map(&plane.revision));
        InjectionService { plane, config_map, objects, metrics, state: Mutex::default() }
    }

    /// Parses each new ConfigMap when it arrives, not at the first pod. Runs until the sender is dropped.
    pub(crate) async fn follow(self: Arc<Self>, mut objects: watch::Receiver<Arc<Snapshot>>) {
        loop {
            let snapshot = objects.borrow_and_update().clone();
            self.refresh(&snapshot);
            if objects.changed().await.is_err() {
                return;
            }
        }
    }

    /// The answer to a review; the object is gone afterwards. `None`: there is no valid configuration yet. `path`: of the URL.
    pub(crate) fn answer(&self, mut review: Review, path: &str) -> Option<Value> {
        let objects = self.objects.snapshot()?;
        let injector = self.refresh(&objects)?;
        let request = Request { pod: review.object.take(), namespace: &review.namespace, path, workload: None };
        let injection = injector.inject(request, &self.plane, &objects);
        self.count(&injection);
        log(&injection, path);
        Some(review.response(&injection))
    }

    pub fn report(&self) -> InjectorReport {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let injector = state.injector.as_ref();
        let templates = injector.into_iter().flat_map(|injector| injector.config.template_texts());
        InjectorReport {
            config_map: self.described(),
            problem: state.problem.clone(),
            templates: templates.map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
        }
    }

    pub(crate) fn described(&self) -> String {
        format!("{}/{}", self.config_map.namespace, self.config_map.name)
    }

    /// The injector in use. An invalid ConfigMap, or none, leaves the last valid one in use.
    fn refresh(&self, objects: &Snapshot) -> Option<Arc<Injector>> {
        let found = objects.config_maps.get(&self.config_map);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let same = match (&state.seen, found) {
            (Some(seen), Some(found)) => Arc::ptr_eq(seen, found) || seen.spec == found.spec,
            (None, None) => true,
            _ => false,
        };
        if same {
            return state.injector.clone();
        }
        state.seen = found.cloned();
        match found.map(|found| Injector::parse(&found.spec.data)) {
            Some(Ok(injector)) => {
                info!(config_map = self.described(), "injection configuration loaded");
                state.injector = Some(Arc::new(injector));
                state.problem = None;
            }
            Some(Err(problem)) => self.keep(&mut state, problem.to_string()),
            None => self.keep(&mut state, "the ConfigMap is gone".to_owned()),
        }
        self.metrics.invalid_config.set(i64::from(state.problem.is_some()));
        state.injector.clone()
    }

    fn keep(&self, state: &mut InjectorState, problem: String) {
        let config_map = self.described();
        if state.injector.is_some() {
            error!(config_map, problem, "injection configuration rejected: keeping the last valid one");
        } else {
            error!(config_map, problem, "injection configuration rejected: pods cannot be injected");
        }
        state.problem = Some(problem);
    }

    fn count(&self, injection: &Injection) {
        match &injection.outcome {
            Ok(InjectionOutcome::Skipped(_)) => self.metrics.skipped.inc(),
            Ok(InjectionOutcome::Injected { .. }) => {}
            Err(_) => self.metrics.failure.inc(),
        }
        for fault in &injection.faults {
            self.metrics.faults.with_label_values(&[fault.id()]).inc();
        }
    }
}

/// The name of the injector's ConfigMap for a revision: istiod's.
pub fn injector_config_map(revision: &str) -> String {
    match revision {
        "" | "default" => CONFIG_MAP.to_owned(),
        revision => format!("{CONFIG_MAP}-{revision}"),
    }
}

fn log(injection: &Injection, path: &str) {
    let Injection { pod, outcome, warnings, faults } = injection;
    match outcome {
        Ok(InjectionOutcome::Skipped(reason)) => info!(pod, path, decision = "skipped", %reason, "sidecar injection"),
        Ok(InjectionOutcome::Injected { reason, .. }) => {
            info!(pod, path, decision = "injected", %reason, "sidecar injection");
        }
        Err(reason) => warn!(pod, path, decision = "refused", reason, "sidecar injection"),
    }
    for warning in warnings {
        warn!(pod, warning, "sidecar injection: a setting was passed over");
    }
    for fault in faults {
        warn!(pod, fault = fault.id(), what = %fault, "sidecar injection: the API server will refuse the result");
    }
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use inject::NativeSidecars;
    use serde_json::json;

    use super::*;

    const VALID: &str = "{policy: enabled, templates: {sidecar: 'metadata: {labels: {a: b}}'}}";

    struct Rig {
        store: Store,
        service: InjectionService,
    }

    impl Rig {
        fn new(revision: &str) -> Rig {
            let plane = ControlPlane {
                revision: revision.to_owned(),
                native_sidecars: NativeSidecars::Off,
                openshift: false,
                compliance_policy: String::new(),
                cluster_id: "Kubernetes".to_owned(),
            };
            let metrics = InjectionMetrics::register(&xds::Register::new(prometheus::Registry::new())).unwrap();
            let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
            Rig { store, service: InjectionService::new(plane, "istio-system", Arc::default(), metrics) }
        }

        fn put(&mut self, name: &str, config: &str) {
            let text = format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: istio-system}}, data: {{values: '{{}}', config: {}}}}}",
                json!(config)
            );
            let updates = parse_documents("f", &text).objects.into_iter().map(Update::Put).collect();
            self.service.objects.set(self.store.apply(updates));
        }

        fn patched(&self) -> Option<bool> {
            self.answer(&json!({ "containers": [] })).map(|answer| answer["response"]["patch"].is_string())
        }

        fn answer(&self, spec: &Value) -> Option<Value> {
            let object = json!({ "metadata": { "name": "p" }, "spec": spec });
            let review =
                Review { api_version: "admission.k8s.io/v1".into(), uid: "u".into(), namespace: "shop".into(), object };
            self.service.answer(review, "/inject")
        }
    }

    #[test]
    fn an_invalid_config_map_leaves_the_last_valid_one_in_use_and_is_named() {
        let mut rig = Rig::new("");
        assert_eq!(rig.patched(), None);
        rig.put("istio-sidecar-injector", VALID);
        assert_eq!(rig.patched(), Some(true));
        rig.put("istio-sidecar-injector", "{policy: disabled, templates: {sidecar: '{{ nonesuch }}'}}");
        assert_eq!(rig.patched(), Some(true));
        let problem = rig.service.report().problem.unwrap();
        assert!(problem.contains("nonesuch") && rig.service.metrics.invalid_config.get() == 1, "{problem}");
        rig.put("istio-sidecar-injector", "policy: disabled");
        assert_eq!(rig.patched(), Some(false));
        assert_eq!((rig.service.report().problem, rig.service.metrics.invalid_config.get()), (None, 0));
    }

    #[test]
    fn faults_of_the_result_are_counted_by_kind() {
        let mut rig = Rig::new("");
        rig.put(
            "istio-sidecar-injector",
            "{policy: enabled, templates: {sidecar: 'spec: {volumes: [{name: data, emptyDir: {}}]}'}}",
        );
        let volumes = json!([{ "name": "data", "secret": { "secretName": "s" } }]);
        let answer = rig.answer(&json!({ "containers": [], "volumes": volumes })).unwrap();
        assert_eq!(answer["response"]["allowed"], true, "the answer stays istiod's: {answer}");
        assert_eq!(rig.service.metrics.faults.with_label_values(&["volume-kinds"]).get(), 1);
    }

    #[test]
    fn a_revision_has_a_config_map_of_its_own() {
        let mut rig = Rig::new("canary");
        rig.put("istio-sidecar-injector", VALID);
        assert_eq!(rig.patched(), None);
        rig.put("istio-sidecar-injector-canary", VALID);
        assert_eq!(rig.patched(), Some(true));
    }
}

//! `meltemi check-inject`: whether the pods of a workload are injected, by which webhook, and which rule decides. What it prints is in `report`.

mod objects;
mod report;

use anyhow::{Context, Result, bail};
use config::labels::Labels;
use config::store::Name;
use inject::{Injection, Injector, PodTemplate, Selection, WebhookConfiguration};
use serde_json::Value;

use self::objects::{ApiKind, CONFIG_MAP, CheckedObjects, DEPLOYMENT, NAMESPACE, NODE, POD, PROXY_CONFIG, WEBHOOKS};
use self::report::{CheckedWebhook, InjectionCheck, InjectionVerdict};
use super::{CommandOutcome, client};
use settings::args::{CheckInjectArgs, Env, MeshArgs};
use settings::{control_plane, mesh_settings};

const STATUS: &str = "sidecar.istio.io/status";

pub fn run(args: &CheckInjectArgs, env: &Env) -> Result<CommandOutcome> {
    let wanted = WantedWorkload::parse(&args.workload, args.namespace.as_deref())?;
    let check = client::run(async {
        let objects = match &args.config {
            Some(dir) => CheckedObjects::of_folder(dir)?,
            None => CheckedObjects::of_cluster(args.kubeconfig.as_deref()).await?,
        };
        InjectionChecker { objects, istio_namespace: &args.istio_namespace, env }.check(&wanted).await
    })?;
    check.print(args.output);
    Ok(if check.is_right() { CommandOutcome::Done } else { CommandOutcome::Found })
}

/// The workload as it is named on the command line.
#[derive(Debug, PartialEq, Eq)]
struct WantedWorkload {
    /// In this order.
    kinds: Vec<ApiKind>,
    name: Name,
}

impl WantedWorkload {
    fn parse(text: &str, namespace: Option<&str>) -> Result<WantedWorkload> {
        let (kinds, name) = match text.split_once('/') {
            None => (vec![POD, DEPLOYMENT], text),
            Some((kind, name)) => {
                let found = ApiKind::workload(kind);
                (
                    vec![found.with_context(|| {
                        format!("{kind:?} is no kind of workload; write it like deployment/{name}")
                    })?],
                    name,
                )
            }
        };
        // Names may have dots, namespaces may not: with -n all of it is the name.
        let (name, namespace) = match (namespace, name.rsplit_once('.')) {
            (Some(namespace), _) => (name, namespace),
            (None, Some((name, namespace))) => (name, namespace),
            (None, None) => (name, "default"),
        };
        if name.is_empty() || namespace.is_empty() {
            bail!("{text:?} names no workload; write it as [KIND/]NAME[.NAMESPACE]");
        }
        Ok(WantedWorkload { kinds, name: Name::new(namespace, name) })
    }
}

struct InjectionChecker<'a> {
    objects: CheckedObjects,
    istio_namespace: &'a str,
    env: &'a Env,
}

impl InjectionChecker<'_> {
    async fn check(&self, wanted: &WantedWorkload) -> Result<InjectionCheck> {
        let (kind, object) = self.workload(wanted).await?;
        let mut template =
            PodTemplate::of(&object).map_err(anyhow::Error::msg)?.context("the object has no pod template")?;
        template.namespace = wanted.name.namespace.to_string();
        let namespace = self.objects.object(NAMESPACE, &Name::new("", &wanted.name.namespace)).await?;
        let namespace = namespace.with_context(|| format!("there is no Namespace {}", wanted.name.namespace))?;
        let (labels, pod) = (labels_of(&namespace), template.labels());
        let mut webhooks = Vec::new();
        for object in self.objects.all(WEBHOOKS, "").await? {
            if let Some(configuration) = WebhookConfiguration::parse(&object).map_err(anyhow::Error::msg)? {
                let selection = configuration.selection(&labels, &pod);
                webhooks.push(CheckedWebhook { configuration, selection });
            }
        }
        // The order in which an API server asks them.
        webhooks.sort_by(|one, other| one.configuration.name.cmp(&other.configuration.name));
        let asked = webhooks.iter().find(|it| matches!(it.selection, Selection::Asked { .. }));
        let verdict = match asked {
            None if webhooks.is_empty() => InjectionVerdict::NoWebhooks,
            None => InjectionVerdict::NotAsked,
            Some(asked) => match self.injection(&asked.configuration.revision, &template).await? {
                Ok(injection) => InjectionVerdict::Answered(Box::new(injection)),
                Err(problem) => InjectionVerdict::NotConfigured(problem),
            },
        };
        let injected_by = injected_by(&template.pod);
        Ok(InjectionCheck { kind, name: wanted.name.clone(), webhooks, verdict, injected_by })
    }

    async fn workload(&self, wanted: &WantedWorkload) -> Result<(&'static str, Value)> {
        for kind in &wanted.kinds {
            if let Some(object) = self.objects.object(*kind, &wanted.name).await? {
                return Ok((kind.kind, object));
            }
        }
        let kinds: Vec<&str> = wanted.kinds.iter().map(|kind| kind.kind).collect();
        bail!("there is no {} {} in namespace {}", kinds.join(" or "), wanted.name.name, wanted.name.namespace)
    }

    /// What the injector of a revision answers. The inner `Err`: it cannot, since its ConfigMap is missing or invalid.
    async fn injection(&self, revision: &str, template: &PodTemplate) -> Result<Result<Injection, String>> {
        let mesh_args =
            MeshArgs { mesh_config: None, domain: "cluster.local".into(), cluster_id: None, derive_endpoints: false };
        let mut mesh = mesh_settings(mesh_args, &self.env.mesh);
        self.istio_namespace.clone_into(&mut mesh.pod_namespace);
        mesh.revision = if revision == "default" { String::new() } else { revision.to_owned() };
        let mut objects = self.objects.all(CONFIG_MAP, self.istio_namespace).await?;
        for kind in [PROXY_CONFIG, NODE, NAMESPACE] {
            objects.extend(self.objects.all(kind, "").await?);
        }
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        let snapshot = server::load_text(&texts.join("\n---\n"), &mesh)?;
        let plane = control_plane(&mesh, &self.env.injection);
        let name = Name::new(&mesh.pod_namespace, &server::injector_config_map(&plane.revision));
        let described = format!("ConfigMap {}/{}", name.namespace, name.name);
        let Some(map) = snapshot.config_maps.get(&name) else {
            return Ok(Err(format!("there is no {described}")));
        };
        Ok(match Injector::parse(&map.spec.data) {
            Ok(injector) => Ok(injector.inject(template.request(), &plane, &snapshot)),
            Err(problem) => Err(format!("{described}: {problem}")),
        })
    }
}

fn labels_of(object: &Value) -> Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let mut labels: Labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect();
    // An API server sets it on every Namespace; files seldom have it.
    labels.insert("kubernetes.io/metadata.name", object["metadata"]["name"].as_str().unwrap_or_default());
    labels
}

/// The revision that injected the pod as it is. `None`: nobody has.
fn injected_by(pod: &Value) -> Option<String> {
    let status: Value = serde_json::from_str(pod["metadata"]["annotations"][STATUS].as_str()?).ok()?;
    Some(status["revision"].as_str().unwrap_or("default").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_named_as_for_istioctl() {
        let wanted =
            |text: &str, namespace: Option<&str>| WantedWorkload::parse(text, namespace).map(|it| (it.kinds, it.name));
        assert_eq!(wanted("cart.shop", None).unwrap(), (vec![POD, DEPLOYMENT], Name::new("shop", "cart")));
        assert_eq!(wanted("deploy/cart", None).unwrap(), (vec![DEPLOYMENT], Name::new("default", "cart")));
        assert_eq!(wanted("a.b", Some("shop")).unwrap().1, Name::new("shop", "a.b"));
        for wrong in ["service/a", "pod/", ".shop", ""] {
            assert!(wanted(wrong, None).is_err(), "{wrong}");
        }
    }
}

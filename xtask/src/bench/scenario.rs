//! What is done to a mesh, in which order, and who should hear of it. Where the objects live, in a folder or an API server, is not known here.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::objects::Objects;
use super::size::Size;
use super::swarm::QUIET;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scenario {
    /// All proxies connect at once, knowing nothing
    Connect,
    /// Nothing happens, for ten seconds
    Idle,
    /// An endpoint of the service that every proxy sees is replaced
    Endpoint,
    /// An endpoint of a service in one namespace becomes unready, or ready again
    EndpointOfOne,
    /// A timeout of the VirtualService that every proxy sees
    VirtualService,
    /// A timeout of a VirtualService in one namespace
    VirtualServiceOfOne,
    /// A limit of the DestinationRule that every proxy sees
    DestinationRule,
    /// A timeout of the VirtualService of one Gateway's host
    GatewayRoute,
    /// The least version of TLS that one Gateway takes
    GatewayServer,
    /// A Service with endpoints appears in one namespace
    NewService,
    /// It goes again
    DeletedService,
    /// An annotation on the VirtualService that every proxy sees
    NoopAnnotation,
    /// An annotation on the Service that every proxy sees
    NoopService,
    /// A label on a Pod that nothing selects
    NoopLabel,
    /// A VirtualService gets another resourceVersion
    NoopVersion,
    /// An object is written again as it was
    NoopSave,
    /// The script of an EnvoyFilter for the whole mesh, in every HTTP chain
    EnvoyFilter,
    /// The script of one of a hundred EnvoyFilters, each for a namespace
    EnvoyFilterOfOne,
    /// Whom an AuthorizationPolicy for the whole mesh lets in
    AuthorizationPolicy,
    /// Whom one of a hundred AuthorizationPolicies, each for a namespace, lets in
    AuthorizationPolicyOfOne,
    /// Fifty pods of one service are replaced, one every 20 ms
    Rollout,
    /// The same with PILOT_ENABLE_EDS_DEBOUNCE=true, which is istiod's default
    RolloutDebounced,
    /// All proxies lose their streams and connect again with what they hold
    Reconnect,
    /// Five of a hundred proxies stop reading; then a timeout of the VirtualService that every proxy sees
    SlowConsumers,
    /// One of a hundred proxies rejects its listeners, which an EnvoyFilter for the whole mesh has changed; then a timeout of the VirtualService that
    /// every proxy sees
    PoisonedFilter,
}

const ROLLOUT_PODS: usize = 50;
const ROLLOUT_PACE: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_secs(10);

const SHARED: &str = "istio-system/shared.yaml";
const SHARED_PODS: &str = "istio-system/shared-pods.yaml";
const ONE: &str = "ns-0/s-0.yaml";
const ONE_PODS: &str = "ns-0/s-0-pods.yaml";
const NEW_SERVICE: &str = "new-service.yaml";
const GATEWAY: &str = "edge/gateway-0.yaml";
/// Where the gateway proxies are.
const EDGE: &str = "edge";
const MESH_FILTER: &str = "mesh-filter.yaml";
const MESH_POLICY: &str = "mesh-policy.yaml";
/// The one of them that changes.
const FIRST_FILTER: &str = "filter-0.yaml";
const FIRST_POLICY: &str = "policy-0.yaml";
/// Of which there is one for each of so many namespaces.
const GUESTS: usize = 100;

impl Scenario {
    /// Changes that must reach nobody.
    pub(super) const NOOPS: [Scenario; 5] = [
        Scenario::NoopAnnotation,
        Scenario::NoopService,
        Scenario::NoopLabel,
        Scenario::NoopVersion,
        Scenario::NoopSave,
    ];

    /// Whether a mesh of this size has what is changed.
    pub(super) fn fits(self, size: &Size) -> bool {
        size.gateways > 0 || !matches!(self, Scenario::GatewayRoute | Scenario::GatewayServer)
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("no variant is hidden").get_name().to_owned()
    }

    /// How long those who should hear may take: on a machine that is busy a change must not be counted as the next one's.
    pub(super) fn settle_limit(self) -> Duration {
        if self.must_reach() { QUIET * 30 } else { QUIET }
    }

    /// Whether some proxy has to hear of it.
    pub(super) fn must_reach(self) -> bool {
        self != Scenario::Idle && !Scenario::NOOPS.contains(&self)
    }

    /// The argument of loadgen: `all`, `none`, or the namespace whose proxies should hear of it.
    pub(super) fn audience(self, size: &Size) -> String {
        match self {
            _ if !self.must_reach() => "none".to_owned(),
            Scenario::EndpointOfOne | Scenario::VirtualServiceOfOne if size.scoped => size.namespace(0),
            Scenario::NewService | Scenario::DeletedService if size.scoped => size.namespace(size.services),
            Scenario::GatewayRoute | Scenario::GatewayServer => EDGE.to_owned(),
            // Whatever proxies see of others, these are for those of their own namespace.
            Scenario::EnvoyFilterOfOne | Scenario::AuthorizationPolicyOfOne => size.namespace(0),
            _ => "all".to_owned(),
        }
    }

    /// Objects that are there only while it is measured, each in a file of its own.
    pub(super) fn guests(self, size: &Size) -> Vec<(String, Value)> {
        match self {
            Scenario::EnvoyFilter | Scenario::PoisonedFilter => {
                vec![(MESH_FILTER.to_owned(), filter("istio-system", "mesh"))]
            }
            Scenario::EnvoyFilterOfOne => {
                let one = |index: usize| {
                    (format!("filter-{index}.yaml"), filter(&size.namespace(index), &format!("f-{index}")))
                };
                (0..GUESTS).map(one).collect()
            }
            Scenario::AuthorizationPolicy => vec![(MESH_POLICY.to_owned(), policy("istio-system", "mesh"))],
            Scenario::AuthorizationPolicyOfOne => {
                let one = |index: usize| {
                    (format!("policy-{index}.yaml"), policy(&size.namespace(index), &format!("p-{index}")))
                };
                (0..GUESTS).map(one).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The command to the swarm as the phase begins.
    pub(super) fn command(self) -> Option<&'static str> {
        match self {
            Scenario::Connect => Some("connect"),
            Scenario::Reconnect => Some("reconnect"),
            _ => None,
        }
    }

    /// Changes what some proxies reject, before anything is measured.
    pub(super) fn poison(objects: &mut Objects) -> Result<()> {
        objects.edit(MESH_FILTER, "EnvoyFilter", set_script)
    }

    /// Makes the change. Returns how long it took until its last write began, where that matters.
    pub(super) fn change(self, objects: &mut Objects) -> Result<Duration> {
        match self {
            Scenario::Connect | Scenario::Reconnect => {}
            Scenario::Idle => thread::sleep(IDLE),
            Scenario::Endpoint => replace_pod(objects)?,
            Scenario::EndpointOfOne => objects.edit(ONE, "EndpointSlice", |slice, _| {
                let ready = &mut slice["endpoints"][0]["conditions"]["ready"];
                *ready = json!(*ready != json!(true));
            })?,
            Scenario::VirtualService | Scenario::SlowConsumers | Scenario::PoisonedFilter => {
                objects.edit(SHARED, "VirtualService", set_timeout)?;
            }
            Scenario::VirtualServiceOfOne => objects.edit(ONE, "VirtualService", set_timeout)?,
            Scenario::DestinationRule => objects.edit(SHARED, "DestinationRule", |object, step| {
                object["spec"]["trafficPolicy"]["connectionPool"]["tcp"]["maxConnections"] = json!(200 + step);
            })?,
            Scenario::GatewayRoute => objects.edit(GATEWAY, "VirtualService", set_timeout)?,
            Scenario::GatewayServer => objects.edit(GATEWAY, "Gateway", |object, _| {
                let version = &mut object["spec"]["servers"][0]["tls"]["minProtocolVersion"];
                *version = json!(if *version == json!("TLSV1_2") { "TLSV1_3" } else { "TLSV1_2" });
            })?,
            Scenario::NewService => objects.add(NEW_SERVICE)?,
            Scenario::DeletedService => objects.remove(NEW_SERVICE)?,
            Scenario::NoopAnnotation => objects.edit(SHARED, "VirtualService", annotate)?,
            Scenario::NoopService => objects.edit(SHARED, "Service", annotate)?,
            Scenario::NoopLabel => objects.edit(ONE_PODS, "Pod", |pod, step| {
                pod["metadata"]["labels"]["bench.meltemi/step"] = json!(step.to_string());
            })?,
            Scenario::NoopVersion => objects.revise(SHARED, "VirtualService")?,
            Scenario::NoopSave => objects.edit(SHARED, "VirtualService", |_, _| ())?,
            Scenario::EnvoyFilter => objects.edit(MESH_FILTER, "EnvoyFilter", set_script)?,
            Scenario::EnvoyFilterOfOne => objects.edit(FIRST_FILTER, "EnvoyFilter", set_script)?,
            Scenario::AuthorizationPolicy => objects.edit(MESH_POLICY, "AuthorizationPolicy", let_in)?,
            Scenario::AuthorizationPolicyOfOne => objects.edit(FIRST_POLICY, "AuthorizationPolicy", let_in)?,
            Scenario::Rollout | Scenario::RolloutDebounced => return roll_out(objects),
        }
        Ok(Duration::ZERO)
    }
}

fn set_timeout(object: &mut Value, step: usize) {
    object["spec"]["http"][1]["timeout"] = json!(format!("{}s", 11 + step));
}

fn set_script(filter: &mut Value, step: usize) {
    let config = &mut filter["spec"]["configPatches"][0]["patch"]["value"]["typed_config"];
    config["default_source_code"]["inline_string"] = json!(format!("-- {step}"));
}

/// A script before the router of every HTTP chain.
fn filter(namespace: &str, name: &str) -> Value {
    let router = json!({ "name": "envoy.filters.network.http_connection_manager", "subFilter": { "name": "envoy.filters.http.router" } });
    let script = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": { "inline_string": "-- 0" },
    });
    json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "configPatches": [{
            "applyTo": "HTTP_FILTER",
            "match": { "listener": { "filterChain": { "filter": router } } },
            "patch": { "operation": "INSERT_BEFORE", "value": { "name": name, "typed_config": script } },
        }] },
    })
}

fn let_in(policy: &mut Value, step: usize) {
    let caller = format!("cluster.local/ns/ns-0/sa/caller-{step}");
    policy["spec"]["rules"][0]["from"][0]["source"]["principals"] = json!([caller]);
}

/// One caller may do everything.
fn policy(namespace: &str, name: &str) -> Value {
    let caller = json!({ "source": { "principals": ["cluster.local/ns/ns-0/sa/caller"] } });
    json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "action": "ALLOW", "rules": [{ "from": [caller] }] },
    })
}

fn annotate(object: &mut Value, step: usize) {
    object["metadata"]["annotations"] = json!({ "bench.meltemi/step": step.to_string() });
}

fn roll_out(objects: &mut Objects) -> Result<Duration> {
    let pods = objects.documents(SHARED_PODS)?.to_vec();
    let slice = (SHARED, "EndpointSlice");
    objects.edit_paced(slice, (ROLLOUT_PODS, ROLLOUT_PACE), |slice| next_pod(slice, &pods)).context("replace pods")
}

fn replace_pod(objects: &mut Objects) -> Result<()> {
    let pods = objects.documents(SHARED_PODS)?.to_vec();
    objects.edit(SHARED, "EndpointSlice", |slice, _| next_pod(slice, &pods)).context("replace a pod")
}

/// The next pod takes the place of the one that has served longest.
fn next_pod(slice: &mut Value, pods: &[Value]) {
    let Some(endpoints) = slice["endpoints"].as_array_mut() else { return };
    let served = endpoints.last().map(|endpoint| endpoint["targetRef"]["name"].clone());
    let at = pods.iter().position(|pod| Some(&pod["metadata"]["name"]) == served.as_ref()).unwrap_or(0);
    let pod = &pods[(at + 1) % pods.len()];
    let node = pod["spec"]["nodeName"].clone();
    let mut endpoint = endpoints.remove(0);
    endpoint["addresses"] = json!([pod["status"]["podIP"]]);
    endpoint["zone"] = json!(node.as_str().map(|name| name.replace("node", "zone")));
    endpoint["nodeName"] = node;
    endpoint["targetRef"]["name"] = pod["metadata"]["name"].clone();
    endpoints.push(endpoint);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        size: Size,
    }

    #[test]
    fn a_change_in_one_namespace_concerns_its_proxies_when_they_are_scoped() {
        let size = |args: &[&str]| Line::parse_from([&["x"], args].concat()).size;
        let (open, scoped) = (size(&[]), size(&["--scoped", "--services=13", "--namespaces=5"]));
        assert_eq!(Scenario::EndpointOfOne.audience(&open), "all");
        assert_eq!(Scenario::EndpointOfOne.audience(&scoped), "ns-0");
        assert_eq!(Scenario::NewService.audience(&scoped), "ns-3");
        assert_eq!(Scenario::VirtualService.audience(&scoped), "all");
        assert_eq!(Scenario::GatewayRoute.audience(&open), "edge");
        assert!(!Scenario::GatewayRoute.fits(&open) && Scenario::GatewayRoute.fits(&size(&["--gateways=1"])));
        assert_eq!(Scenario::EnvoyFilterOfOne.audience(&open), "ns-0");
        assert_eq!(Scenario::AuthorizationPolicyOfOne.audience(&open), "ns-0");
        assert_eq!(Scenario::AuthorizationPolicy.audience(&scoped), "all");
        assert!(Scenario::NOOPS.iter().all(|noop| noop.audience(&scoped) == "none"));
    }
}

//! Why a field of an IstioOperator has no value in the chart, and what to do instead.

pub(super) const NAMESPACE: &str = "the namespace is that of the release; pass it to helm with --namespace";
const IMAGE: &str = "it names an image of istiod; the chart has its own, and hub and tag for a copy of it";
const CNI: &str = "the CNI plugin has a chart of its own, istio/cni, and stays as it is";
const ZTUNNEL: &str = "ztunnel has a chart of its own, istio/ztunnel; this version does not serve it";
const GATEWAYS: &str = "gateways have a chart of their own, istio/gateway, and stay as they are";
const REMOTE: &str = "a control plane in another cluster is not supported";

/// By prefix of the path; the first match counts.
const REASONS: &[(&str, &str)] = &[
    ("hub", IMAGE),
    ("tag", IMAGE),
    ("components.pilot.hub", IMAGE),
    ("components.pilot.tag", IMAGE),
    ("values.global.hub", IMAGE),
    ("values.global.tag", IMAGE),
    ("values.global.variant", IMAGE),
    ("values.pilot.hub", IMAGE),
    ("values.pilot.image", IMAGE),
    ("values.pilot.tag", IMAGE),
    ("values.pilot.variant", IMAGE),
    ("namespace", NAMESPACE),
    ("components.pilot.namespace", NAMESPACE),
    ("values.global.istioNamespace", NAMESPACE),
    ("components.base", "Istio's kinds come with a chart of their own, istio/base"),
    ("components.cni", CNI),
    ("values.cni", CNI),
    ("values.istio_cni", CNI),
    ("values.pilot.cni", CNI),
    ("components.ztunnel", ZTUNNEL),
    ("values.ztunnel", ZTUNNEL),
    ("components.egressGateways", GATEWAYS),
    ("components.ingressGateways", GATEWAYS),
    ("values.gateways", GATEWAYS),
    ("components.istiodRemote", REMOTE),
    ("values.istiodRemote", REMOTE),
    ("values.global.configCluster", REMOTE),
    ("values.global.externalIstiod", REMOTE),
    ("values.global.remotePilotAddress", REMOTE),
    ("components.pilot.enabled", "a release of the chart is the control plane; to have none, install none"),
    (
        "components.pilot.k8s.hpaSpec",
        "the chart scales its own Deployment; write cpu or memory.targetAverageUtilization",
    ),
    ("components.pilot.k8s.overlays", "patches of rendered objects are given to helm as a post-renderer"),
    ("components.pilot.k8s.readinessProbe", "the probes of the chart are fixed"),
    ("components.pilot.k8s.securityContext", "the chart runs without root, rights and a writable file system already"),
    ("components.pilot.k8s.service", "ports and selector of the Service are istiod's, which proxies rely on"),
    ("compatibilityVersion", "there is no older behaviour to choose"),
    ("values.compatibilityVersion", "there is no older behaviour to choose"),
    ("installPackagePath", "Istio's own charts are not used"),
    ("values.defaultRevision", "the default revision is set in the chart istio/base, or with a tag"),
    ("values.global.network", "label the release's namespace with topology.istio.io/network instead"),
];

pub(super) fn reason(path: &str) -> &'static str {
    let is_under =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let found = REASONS.iter().find(|(prefix, _)| is_under(prefix));
    found.map_or("the chart has no such value", |(_, reason)| reason)
}

//! Istio's annotations and labels on Kubernetes objects: unknown ones, ones on the wrong kind, deprecated ones, values that cannot be read, and
//! contradicting labels for injection.

use config::kind::Kind;
use config::meta::Meta;
use config::similar::most_similar;

use super::Diagnostics;
use crate::mesh::Mesh;

/// What an annotation is for.
enum AnnotatedKind {
    Pod,
    Service,
    Namespace,
    /// Services, Namespaces and ServiceEntries.
    Traffic,
    /// Objects that are not looked at here.
    Other,
}

/// How the value of an annotation is written.
enum AnnotationForm {
    Text,
    Boolean,
    Number,
    Port,
    Mode,
    /// A list of ports, or `*`.
    Ports,
}

#[rustfmt::skip]
const KNOWN: &[(&str, AnnotatedKind, AnnotationForm)] = &[
    ("alpha.istio.io/canonical-serviceaccounts", AnnotatedKind::Service, AnnotationForm::Text),
    ("alpha.istio.io/kubernetes-serviceaccounts", AnnotatedKind::Service, AnnotationForm::Text),
    ("ambient.istio.io/bypass-inbound-capture", AnnotatedKind::Pod, AnnotationForm::Text),
    ("ambient.istio.io/dns-capture", AnnotatedKind::Pod, AnnotationForm::Text),
    ("ambient.istio.io/redirection", AnnotatedKind::Pod, AnnotationForm::Text),
    ("ambient.istio.io/waypoint-inbound-binding", AnnotatedKind::Other, AnnotationForm::Text),
    ("gateway.istio.io/name-override", AnnotatedKind::Other, AnnotationForm::Text),
    ("gateway.istio.io/service-account", AnnotatedKind::Other, AnnotationForm::Text),
    ("inject.istio.io/templates", AnnotatedKind::Pod, AnnotationForm::Text),
    ("istio.io/autoRegistrationGroup", AnnotatedKind::Other, AnnotationForm::Text),
    ("istio.io/connectedAt", AnnotatedKind::Other, AnnotationForm::Text),
    ("istio.io/disconnectedAt", AnnotatedKind::Other, AnnotationForm::Text),
    ("istio.io/dry-run", AnnotatedKind::Other, AnnotationForm::Text),
    ("istio.io/reroute-virtual-interfaces", AnnotatedKind::Pod, AnnotationForm::Text),
    ("istio.io/workloadController", AnnotatedKind::Other, AnnotationForm::Text),
    ("networking.istio.io/exportTo", AnnotatedKind::Service, AnnotationForm::Text),
    ("networking.istio.io/service-type", AnnotatedKind::Other, AnnotationForm::Text),
    ("networking.istio.io/traffic-distribution", AnnotatedKind::Traffic, AnnotationForm::Text),
    ("prometheus.istio.io/merge-metrics", AnnotatedKind::Pod, AnnotationForm::Boolean),
    ("proxy.istio.io/config", AnnotatedKind::Pod, AnnotationForm::Text),
    ("proxy.istio.io/overrides", AnnotatedKind::Pod, AnnotationForm::Text),
    ("readiness.status.sidecar.istio.io/applicationPorts", AnnotatedKind::Pod, AnnotationForm::Text),
    ("readiness.status.sidecar.istio.io/failureThreshold", AnnotatedKind::Pod, AnnotationForm::Number),
    ("readiness.status.sidecar.istio.io/initialDelaySeconds", AnnotatedKind::Pod, AnnotationForm::Number),
    ("readiness.status.sidecar.istio.io/periodSeconds", AnnotatedKind::Pod, AnnotationForm::Number),
    ("sidecar.istio.io/agentLogLevel", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/bootstrapOverride", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/componentLogLevel", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/discoveryAddress", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/extraStatTags", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/inject", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/interceptionMode", AnnotatedKind::Pod, AnnotationForm::Mode),
    ("sidecar.istio.io/logLevel", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/nativeSidecar", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/proxyCPU", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/proxyCPULimit", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/proxyImage", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/proxyImageType", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/proxyMemory", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/proxyMemoryLimit", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/rewriteAppHTTPProbers", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsCompression", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsEvictionInterval", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsFlushInterval", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsHistogramBins", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsHistogramBuckets", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsInclusionPrefixes", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsInclusionRegexps", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/statsInclusionSuffixes", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/userVolume", AnnotatedKind::Pod, AnnotationForm::Text),
    ("sidecar.istio.io/userVolumeMount", AnnotatedKind::Pod, AnnotationForm::Text),
    ("status.sidecar.istio.io/port", AnnotatedKind::Pod, AnnotationForm::Port),
    ("topology.istio.io/controlPlaneClusters", AnnotatedKind::Namespace, AnnotationForm::Text),
    ("traffic.istio.io/nodeSelector", AnnotatedKind::Service, AnnotationForm::Text),
    ("traffic.sidecar.istio.io/excludeInboundPorts", AnnotatedKind::Pod, AnnotationForm::Ports),
    ("traffic.sidecar.istio.io/excludeInterfaces", AnnotatedKind::Pod, AnnotationForm::Text),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", AnnotatedKind::Pod, AnnotationForm::Text),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", AnnotatedKind::Pod, AnnotationForm::Ports),
    ("traffic.sidecar.istio.io/includeInboundPorts", AnnotatedKind::Pod, AnnotationForm::Ports),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", AnnotatedKind::Pod, AnnotationForm::Text),
    ("traffic.sidecar.istio.io/includeOutboundPorts", AnnotatedKind::Pod, AnnotationForm::Ports),
    ("traffic.sidecar.istio.io/kubevirtInterfaces", AnnotatedKind::Pod, AnnotationForm::Text),
];

/// Not checked: written by controllers, or read by tools.
const UNCHECKED: [&str; 5] = [
    "sidecar.istio.io/status",
    "gateway.istio.io/controller-version",
    "istio.io/rev",
    "galley.istio.io/analyze-suppress",
    // Read by istiod, though not in its own list.
    "istio.io/connect-strategy",
];

/// Deprecated ones that have a successor.
const SUCCESSORS: [(&str, &str); 2] = [
    ("sidecar.istio.io/inject", "the label sidecar.istio.io/inject"),
    ("sidecar.istio.io/discoveryAddress", "discoveryAddress in proxy.istio.io/config"),
];

const INJECTION: &str = "istio-injection";
const REVISION: &str = "istio.io/rev";

pub(super) fn check(mesh: &Mesh, diagnostics: &mut Diagnostics) {
    for namespace in mesh.objects.namespaces.values() {
        check_annotations(Kind::Namespace, &namespace.meta, diagnostics);
        let labels = &namespace.meta.labels;
        if labels.get(INJECTION).is_some() && labels.get(REVISION).is_some() {
            let what =
                format!("the namespace has the labels {INJECTION} and {REVISION}, of which the first wins; remove one");
            diagnostics.warn(Kind::Namespace, &namespace.meta, "metadata.labels", what);
        }
    }
    for service in mesh.objects.services.values() {
        check_annotations(Kind::Service, &service.meta, diagnostics);
    }
    for pod in mesh.objects.pods.values() {
        check_annotations(Kind::Pod, &pod.meta, diagnostics);
    }
}

fn check_annotations(kind: Kind, meta: &Meta, diagnostics: &mut Diagnostics) {
    let of_istio = |name: &str| name.split_once('/').is_some_and(|(group, _)| group.ends_with("istio.io"));
    for (name, value) in meta.annotations.iter().filter(|(name, _)| of_istio(name) && !UNCHECKED.contains(name)) {
        if let Some(what) = fault(kind, meta, name, value) {
            diagnostics.warn(kind, meta, format!("metadata.annotations[{name:?}]"), what);
        }
    }
}

fn fault(kind: Kind, meta: &Meta, name: &str, value: &str) -> Option<String> {
    let Some((_, annotated_kind, form)) = KNOWN.iter().find(|(known, ..)| *known == name) else {
        let names: Vec<&str> = KNOWN.iter().map(|(known, ..)| *known).collect();
        let hint = most_similar(name, &names).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        return Some(format!("no such annotation exists, and nobody reads it{hint}"));
    };
    let (fits, kinds) = match annotated_kind {
        AnnotatedKind::Pod => (kind == Kind::Pod, "Pods"),
        AnnotatedKind::Service => (kind == Kind::Service, "Services"),
        AnnotatedKind::Namespace => (kind == Kind::Namespace, "Namespaces"),
        AnnotatedKind::Traffic => (kind != Kind::Pod, "Services, Namespaces and ServiceEntries"),
        AnnotatedKind::Other => (false, "other kinds"),
    };
    if !fits {
        return Some(format!("this annotation is for {kinds}; nobody reads it on a {kind}"));
    }
    if let Some(expected) = form.fault(value) {
        return Some(format!("{value:?} is not {expected}"));
    }
    let (_, successor) = SUCCESSORS.iter().find(|(deprecated, _)| *deprecated == name)?;
    // Who has both keeps the old one for older versions.
    let has_both = meta.labels.get(name).is_some();
    (!has_both).then(|| format!("this annotation is deprecated; use {successor}"))
}

impl AnnotationForm {
    /// What was expected, if the value is something else.
    fn fault(&self, value: &str) -> Option<&'static str> {
        let (is_good, expected) = match self {
            AnnotationForm::Text => return None,
            AnnotationForm::Boolean => (
                matches!(
                    value,
                    "1" | "t" | "T" | "true" | "TRUE" | "True" | "0" | "f" | "F" | "false" | "FALSE" | "False"
                ),
                "true or false",
            ),
            AnnotationForm::Number => (value.parse::<u32>().is_ok(), "a whole number"),
            AnnotationForm::Port => (value.parse::<u16>().is_ok(), "a port"),
            AnnotationForm::Mode => (matches!(value, "REDIRECT" | "TPROXY" | "NONE"), "REDIRECT, TPROXY or NONE"),
            AnnotationForm::Ports => {
                let each = |port: &str| matches!(port.trim(), "" | "*") || port.trim().parse::<u16>().is_ok();
                (value.split(',').all(each), "a list of ports such as 80,8080")
            }
        };
        (!is_good).then_some(expected)
    }
}

//! The fields of an IstioOperator that the chart has a value for, the name of that value, and its type.

use config::tree::{Node, Value};

pub(super) struct FieldMapping {
    /// Below `spec`.
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) shape: Shape,
}

/// Environment variables are a list in Kubernetes and a mapping in the chart.
pub(super) const ENV: &str = "env, envVarFrom";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    /// A part of names of objects.
    Label,
    Switch,
    /// At least one.
    Count,
    Number,
    /// A count, or a share like `25%`.
    Share,
    Texts,
    List,
    Mapping,
    /// Of texts, numbers and switches.
    Scalars,
}

impl Shape {
    /// The expected type, if the node has another.
    pub(super) fn mismatch(self, node: &Node) -> Option<&'static str> {
        let (fits, expected) = match self {
            Shape::Text => (node.text().is_some(), "should be a text (in quotes where it looks like a number)"),
            Shape::Label => (
                node.text().is_some_and(is_label),
                "should be lower-case letters, digits and dashes (in quotes where it looks like a number)",
            ),
            Shape::Switch => (matches!(node.value, Value::Bool(_)), "should be true or false"),
            Shape::Count => (matches!(node.value, Value::Integer(1..)), "should be a number, 1 or more"),
            Shape::Number => {
                (matches!(node.value, Value::Integer(0..) | Value::Float(0.0..)), "should be a number, 0 or more")
            }
            Shape::Share => (
                matches!(node.value, Value::Integer(0..)) || node.text().is_some_and(is_percentage),
                "should be a number, or a share like 25%",
            ),
            Shape::Texts => {
                (items(node).is_some_and(|it| it.iter().all(|it| it.text().is_some())), "should be a list of texts")
            }
            Shape::List => (items(node).is_some(), "should be a list"),
            Shape::Mapping => (node.entries().is_some(), "should be a mapping"),
            Shape::Scalars => (
                node.entries().is_some_and(|it| it.iter().all(|entry| is_scalar(&entry.value))),
                "should be a mapping of names to texts",
            ),
        };
        (!fits).then_some(expected)
    }
}

fn items(node: &Node) -> Option<&[Node]> {
    match &node.value {
        Value::List(items) => Some(items),
        _ => None,
    }
}

fn is_scalar(node: &Node) -> bool {
    matches!(node.value, Value::Text(_) | Value::Bool(_) | Value::Integer(_) | Value::Float(_))
}

fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|number| number.parse::<u32>().is_ok())
}

fn is_label(text: &str) -> bool {
    text.len() <= 50
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

macro_rules! fields {
    ($($from:literal => $to:expr, $shape:ident;)*) => {
        &[$(FieldMapping { from: $from, to: $to, shape: Shape::$shape },)*]
    };
}

pub(super) const FIELDS: &[FieldMapping] = fields! {
    "revision" => "revision", Label;
    "meshConfig" => "meshConfig", Mapping;

    "values.revision" => "revision", Label;
    "values.revisionTags" => "revisionTags", Texts;
    "values.ownerName" => "ownerName", Text;
    "values.meshConfig" => "meshConfig", Mapping;
    "values.base.validationFailurePolicy" => "base.validationFailurePolicy", Text;

    "values.sidecarInjectorWebhook" => "sidecarInjectorWebhook", Mapping;
    "values.gateways.seccompProfile" => "gateways.seccompProfile", Mapping;
    "values.gateways.securityContext" => "gateways.securityContext", Mapping;
    "values.pilot.cni.enabled" => "cni.enabled", Switch;
    "values.pilot.cni.provider" => "cni.provider", Text;

    "values.telemetry.enabled" => "telemetry.enabled", Switch;
    "values.telemetry.v2.enabled" => "telemetry.v2.enabled", Switch;
    "values.telemetry.v2.prometheus.enabled" => "telemetry.v2.prometheus.enabled", Switch;

    "values.pilot.autoscaleEnabled" => "autoscaleEnabled", Switch;
    "values.pilot.autoscaleMin" => "autoscaleMin", Count;
    "values.pilot.autoscaleMax" => "autoscaleMax", Count;
    "values.pilot.autoscaleBehavior" => "autoscaleBehavior", Mapping;
    "values.pilot.replicaCount" => "replicaCount", Count;
    "values.pilot.cpu" => "cpu", Mapping;
    "values.pilot.memory" => "memory", Mapping;
    "values.pilot.rollingMaxSurge" => "rollingMaxSurge", Share;
    "values.pilot.rollingMaxUnavailable" => "rollingMaxUnavailable", Share;
    "values.pilot.pdb" => "pdb", Mapping;
    "values.pilot.resources" => "resources", Mapping;
    "values.pilot.env" => "env", Scalars;
    "values.pilot.envVarFrom" => "envVarFrom", List;
    "values.pilot.extraContainerArgs" => "extraContainerArgs", Texts;
    "values.pilot.initContainers" => "initContainers", List;
    "values.pilot.traceSampling" => "traceSampling", Number;
    "values.pilot.keepaliveMaxServerConnectionAge" => "keepaliveMaxServerConnectionAge", Text;
    "values.pilot.nodeSelector" => "nodeSelector", Scalars;
    "values.pilot.affinity" => "affinity", Mapping;
    "values.pilot.tolerations" => "tolerations", List;
    "values.pilot.topologySpreadConstraints" => "topologySpreadConstraints", List;
    "values.pilot.deploymentLabels" => "deploymentLabels", Scalars;
    "values.pilot.deploymentAnnotations" => "deploymentAnnotations", Scalars;
    "values.pilot.podLabels" => "podLabels", Scalars;
    "values.pilot.podAnnotations" => "podAnnotations", Scalars;
    "values.pilot.serviceAnnotations" => "serviceAnnotations", Scalars;
    "values.pilot.serviceAccountAnnotations" => "serviceAccountAnnotations", Scalars;
    "values.pilot.ipFamilyPolicy" => "ipFamilyPolicy", Text;
    "values.pilot.ipFamilies" => "ipFamilies", Texts;
    "values.pilot.trafficDistribution" => "trafficDistribution", Text;
    "values.pilot.volumes" => "volumes", List;
    "values.pilot.volumeMounts" => "volumeMounts", List;
    "values.pilot.seccompProfile" => "seccompProfile", Mapping;
    "values.pilot.configMap" => "configMap", Switch;

    "values.global.certSigners" => "global.certSigners", Texts;
    "values.global.configValidation" => "global.configValidation", Switch;
    "values.global.defaultPodDisruptionBudget.enabled" => "global.defaultPodDisruptionBudget.enabled", Switch;
    "values.global.defaultResources" => "global.defaultResources", Mapping;
    "values.global.imagePullPolicy" => "global.imagePullPolicy", Text;
    "values.global.imagePullSecrets" => "global.imagePullSecrets", Texts;
    "values.global.logAsJson" => "global.logAsJson", Switch;
    "values.global.logging.level" => "global.logging.level", Text;
    "values.global.meshID" => "global.meshID", Text;
    "values.global.meshNetworks" => "global.meshNetworks", Mapping;
    "values.global.multiCluster.clusterName" => "global.multiCluster.clusterName", Text;
    "values.global.networkPolicy.enabled" => "global.networkPolicy.enabled", Switch;
    "values.global.priorityClassName" => "global.priorityClassName", Text;
    "values.global.proxy" => "global.proxy", Mapping;
    "values.global.proxy_init" => "global.proxy_init", Mapping;
    "values.global.tracer" => "global.tracer", Mapping;
    "values.global.sds.token.aud" => "global.sds.token.aud", Text;

    "components.cni.enabled" => "cni.enabled", Switch;
    "components.pilot.k8s.affinity" => "affinity", Mapping;
    "components.pilot.k8s.env" => ENV, List;
    "components.pilot.k8s.hpaSpec.behavior" => "autoscaleBehavior", Mapping;
    "components.pilot.k8s.hpaSpec.maxReplicas" => "autoscaleMax", Count;
    "components.pilot.k8s.hpaSpec.minReplicas" => "autoscaleMin", Count;
    "components.pilot.k8s.imagePullPolicy" => "global.imagePullPolicy", Text;
    "components.pilot.k8s.nodeSelector" => "nodeSelector", Scalars;
    "components.pilot.k8s.podAnnotations" => "podAnnotations", Scalars;
    "components.pilot.k8s.podDisruptionBudget.maxUnavailable" => "pdb.maxUnavailable", Share;
    "components.pilot.k8s.podDisruptionBudget.minAvailable" => "pdb.minAvailable", Share;
    "components.pilot.k8s.priorityClassName" => "global.priorityClassName", Text;
    "components.pilot.k8s.replicaCount" => "replicaCount", Count;
    "components.pilot.k8s.resources" => "resources", Mapping;
    "components.pilot.k8s.service.ipFamilies" => "ipFamilies", Texts;
    "components.pilot.k8s.service.ipFamilyPolicy" => "ipFamilyPolicy", Text;
    "components.pilot.k8s.serviceAnnotations" => "serviceAnnotations", Scalars;
    "components.pilot.k8s.strategy.rollingUpdate.maxSurge" => "rollingMaxSurge", Share;
    "components.pilot.k8s.strategy.rollingUpdate.maxUnavailable" => "rollingMaxUnavailable", Share;
    "components.pilot.k8s.tolerations" => "tolerations", List;
    "components.pilot.k8s.volumeMounts" => "volumeMounts", List;
    "components.pilot.k8s.volumes" => "volumes", List;
};

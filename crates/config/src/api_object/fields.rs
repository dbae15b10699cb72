//! The fields of Kubernetes messages that are read, with their numbers. The API server has these in the file `generated.proto` of each group.

use self::Content::{Annotations, Bool, IntOrString, Integer, Labels, Message, Text, Time};

/// One field of a message.
#[derive(Debug)]
pub(super) struct FieldShape {
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) key: &'static str,
    pub(super) occurrence: Occurrence,
    pub(super) content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    /// A value that Go encodes even if it is unset.
    Plain,
    /// A pointer in Go: there if it is set, to whatever value.
    Optional,
    Repeated,
}

#[derive(Debug)]
pub(super) enum Content {
    Text,
    Integer,
    Bool,
    Time,
    IntOrString,
    /// A map of texts.
    Labels,
    /// The same, of which those that nobody reads are dropped.
    Annotations,
    Message(&'static [FieldShape]),
}

impl FieldShape {
    /// Number and wire type.
    pub(super) fn tag(&self) -> u32 {
        let wire_type = if matches!(self.content, Content::Integer | Content::Bool) { 0 } else { 2 };
        self.number << 3 | wire_type
    }
}

const fn plain(number: u32, key: &'static str, content: Content) -> FieldShape {
    FieldShape { number, key, occurrence: Occurrence::Plain, content }
}

const fn optional(number: u32, key: &'static str, content: Content) -> FieldShape {
    FieldShape { number, key, occurrence: Occurrence::Optional, content }
}

const fn repeated(number: u32, key: &'static str, content: Content) -> FieldShape {
    FieldShape { number, key, occurrence: Occurrence::Repeated, content }
}

const METADATA: FieldShape = plain(
    1,
    "metadata",
    Message(&[
        plain(1, "name", Text),
        plain(2, "generateName", Text),
        plain(3, "namespace", Text),
        plain(6, "resourceVersion", Text),
        plain(8, "creationTimestamp", Time),
        optional(9, "deletionTimestamp", Time),
        repeated(11, "labels", Labels),
        repeated(12, "annotations", Annotations),
        repeated(13, "ownerReferences", Message(OWNER)),
    ]),
);

const OWNER: &[FieldShape] = &[plain(1, "kind", Text), plain(3, "name", Text), optional(6, "controller", Bool)];

pub(super) const POD: &[FieldShape] =
    &[METADATA, plain(2, "spec", Message(POD_SPEC)), plain(3, "status", Message(POD_STATUS))];

const POD_SPEC: &[FieldShape] = &[
    repeated(2, "containers", Message(CONTAINER)),
    plain(8, "serviceAccountName", Text),
    plain(9, "serviceAccount", Text),
    plain(10, "nodeName", Text),
    plain(16, "hostname", Text),
    plain(17, "subdomain", Text),
    repeated(20, "initContainers", Message(CONTAINER)),
];

const CONTAINER: &[FieldShape] = &[repeated(6, "ports", Message(CONTAINER_PORT)), optional(24, "restartPolicy", Text)];

const CONTAINER_PORT: &[FieldShape] =
    &[plain(1, "name", Text), plain(3, "containerPort", Integer), plain(4, "protocol", Text)];

const POD_STATUS: &[FieldShape] = &[
    plain(1, "phase", Text),
    repeated(2, "conditions", Message(&[plain(1, "type", Text), plain(2, "status", Text)])),
    plain(6, "podIP", Text),
    repeated(12, "podIPs", Message(&[plain(1, "ip", Text)])),
];

pub(super) const SERVICE: &[FieldShape] =
    &[METADATA, plain(2, "spec", Message(SERVICE_SPEC)), plain(3, "status", Message(SERVICE_STATUS))];

const SERVICE_SPEC: &[FieldShape] = &[
    repeated(1, "ports", Message(SERVICE_PORT)),
    repeated(2, "selector", Labels),
    plain(3, "clusterIP", Text),
    plain(4, "type", Text),
    repeated(5, "externalIPs", Text),
    plain(7, "sessionAffinity", Text),
    plain(10, "externalName", Text),
    plain(13, "publishNotReadyAddresses", Bool),
    repeated(18, "clusterIPs", Text),
    optional(22, "internalTrafficPolicy", Text),
    optional(23, "trafficDistribution", Text),
];

const SERVICE_PORT: &[FieldShape] = &[
    plain(1, "name", Text),
    plain(2, "protocol", Text),
    plain(3, "port", Integer),
    plain(4, "targetPort", IntOrString),
    optional(6, "appProtocol", Text),
];

const SERVICE_STATUS: &[FieldShape] = &[plain(1, "loadBalancer", Message(&[repeated(1, "ingress", Message(INGRESS))]))];

const INGRESS: &[FieldShape] = &[plain(1, "ip", Text), plain(2, "hostname", Text)];

pub(super) const ENDPOINT_SLICE: &[FieldShape] = &[
    METADATA,
    repeated(2, "endpoints", Message(ENDPOINT)),
    repeated(3, "ports", Message(ENDPOINT_PORT)),
    plain(4, "addressType", Text),
];

const ENDPOINT: &[FieldShape] = &[
    repeated(1, "addresses", Text),
    plain(2, "conditions", Message(CONDITIONS)),
    optional(4, "targetRef", Message(TARGET)),
];

const CONDITIONS: &[FieldShape] =
    &[optional(1, "ready", Bool), optional(2, "serving", Bool), optional(3, "terminating", Bool)];

const TARGET: &[FieldShape] = &[plain(1, "kind", Text), plain(2, "namespace", Text), plain(3, "name", Text)];

const ENDPOINT_PORT: &[FieldShape] =
    &[optional(1, "name", Text), optional(2, "protocol", Text), optional(3, "port", Integer)];

pub(super) const NODE: &[FieldShape] = &[METADATA, plain(3, "status", Message(NODE_STATUS))];

const NODE_STATUS: &[FieldShape] = &[plain(7, "nodeInfo", Message(&[plain(7, "kubeletVersion", Text)]))];

//! PeerAuthentication: mutual TLS modes of workloads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::labels::Selector;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerAuthentication {
    /// `None`: the whole namespace.
    pub selector: Option<Selector>,
    pub mtls: Option<MutualTls>,
    /// By port of the workload, not of the service.
    pub port_level_mtls: BTreeMap<u32, MutualTls>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MutualTls {
    pub mode: MutualTlsMode,
}

/// `Unset` inherits from the next wider level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MutualTlsMode {
    #[default]
    Unset,
    Disable,
    Permissive,
    Strict,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example, parse_error};

    #[test]
    fn a_policy_with_every_field() {
        let policy: PeerAuthentication = example(
            "
selector: {matchLabels: {app: web}}
mtls: {mode: STRICT}
portLevelMtls: {8080: {mode: DISABLE}, '9090': {}}
",
        );
        assert_eq!(policy.selector.unwrap().match_labels.get("app"), Some("web"));
        assert_eq!(policy.mtls, Some(MutualTls { mode: MutualTlsMode::Strict }));
        let ports = [(8080, MutualTlsMode::Disable), (9090, MutualTlsMode::Unset)];
        assert_eq!(policy.port_level_mtls, ports.map(|(port, mode)| (port, MutualTls { mode })).into());
    }

    #[test]
    fn modes() {
        check_enum(&[
            ("UNSET", MutualTlsMode::Unset),
            ("DISABLE", MutualTlsMode::Disable),
            ("PERMISSIVE", MutualTlsMode::Permissive),
            ("STRICT", MutualTlsMode::Strict),
        ]);
        let rejected = parse_error::<PeerAuthentication>("mtls: {mode: strict}");
        assert!(rejected.starts_with("spec.mtls.mode: ") && rejected.contains("STRICT"), "{rejected}");
    }

    #[test]
    fn a_port_must_be_a_number() {
        let rejected = parse_error::<PeerAuthentication>("portLevelMtls: {http: {mode: STRICT}}");
        assert!(rejected.starts_with("spec.portLevelMtls.http: "), "{rejected}");
    }
}

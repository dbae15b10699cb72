//! DestinationRule: host, policies, subsets.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use super::label::{Exported, check_export_to, check_labels, check_match_labels, label_fault};
use super::network::is_ip;
use super::traffic_policy::{check_client_tls, check_load_balancer, check_outlier, check_pool};
use crate::kinds::destination_rule::{DestinationRule, PortTrafficPolicy, Subset, TrafficPolicy, TunnelSettings};
use crate::mesh::dns_name::{name_fault, wildcard_name_fault};
use crate::meta::Meta;

pub(super) fn check(at: &FieldContext<'_>, meta: &Meta, rule: &DestinationRule) {
    at.reject("host", wildcard_name_fault(&rule.host));
    at.if_set("trafficPolicy", rule.traffic_policy.as_deref(), |at, policy| check_policy(at, meta, policy));
    let mut names = BTreeSet::new();
    at.each("subsets", &rule.subsets, |at, subset| {
        if !names.insert(&subset.name) {
            at.field("name").error(format!("there are two subsets {:?}; rename one", subset.name));
        }
        check_subset(at, meta, subset);
    });
    let whose = if rule.workload_selector.is_some() { Exported::SelectingRule } else { Exported::Other };
    check_export_to(at, &meta.namespace, &rule.export_to, whose);
    at.if_set("workloadSelector", rule.workload_selector.as_ref(), check_match_labels);
}

fn check_subset(at: &FieldContext<'_>, meta: &Meta, subset: &Subset) {
    at.reject("name", label_fault(&subset.name));
    check_labels(&at.field("labels"), &subset.labels);
    at.if_set("trafficPolicy", subset.traffic_policy.as_deref(), |at, policy| check_policy(at, meta, policy));
}

fn check_policy(at: &FieldContext<'_>, meta: &Meta, policy: &TrafficPolicy) {
    if is_empty(policy) {
        return at.error("there is nothing in it; write a policy such as loadBalancer or tls, or remove it");
    }
    if policy.tunnel.is_some() && policy.proxy_protocol.is_some() {
        return at.error("tunnel and proxyProtocol exclude each other; keep one of them");
    }
    let outlier = policy.outlier_detection.as_ref();
    at.if_set("outlierDetection", outlier, check_outlier);
    at.if_set("connectionPool", policy.connection_pool.as_ref(), check_pool);
    at.if_set("loadBalancer", policy.load_balancer.as_ref(), |at, lb| check_load_balancer(at, lb, outlier));
    at.if_set("tls", policy.tls.as_ref(), |at, tls| check_client_tls(at, &meta.namespace, tls));
    at.each("portLevelSettings", &policy.port_level_settings, |at, port| check_port_policy(at, meta, port));
    at.if_set("tunnel", policy.tunnel.as_ref(), check_tunnel);
}

fn is_empty(policy: &TrafficPolicy) -> bool {
    *policy == TrafficPolicy::default()
}

fn check_port_policy(at: &FieldContext<'_>, meta: &Meta, policy: &PortTrafficPolicy) {
    if policy.port.is_none() {
        at.field("port").error("it is missing; say which port, as in port: {number: 80}");
    }
    let PortTrafficPolicy { port: _, load_balancer, connection_pool, outlier_detection, tls } = policy;
    if load_balancer.is_none() && connection_pool.is_none() && outlier_detection.is_none() && tls.is_none() {
        return at.error("there is nothing in it; write a policy such as loadBalancer or tls, or remove it");
    }
    at.if_set("outlierDetection", outlier_detection.as_ref(), check_outlier);
    at.if_set("connectionPool", connection_pool.as_ref(), check_pool);
    at.if_set("loadBalancer", load_balancer.as_ref(), |at, lb| {
        check_load_balancer(at, lb, outlier_detection.as_ref());
    });
    at.if_set("tls", tls.as_ref(), |at, tls| check_client_tls(at, &meta.namespace, tls));
}

fn check_tunnel(at: &FieldContext<'_>, tunnel: &TunnelSettings) {
    let known = matches!(tunnel.protocol.as_str(), "" | "CONNECT" | "POST");
    at.reject_if("protocol", !known, "not a way to tunnel; use CONNECT or POST");
    let host = &tunnel.target_host;
    at.reject("targetHost", if is_ip(host) { None } else { name_fault(host) });
    at.check_port("targetPort", tunnel.target_port);
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    const TABLE: Table = Table { kind: "DestinationRule", valid: "host: cart" };

    #[test]
    fn hosts_and_subsets() {
        check(
            &TABLE,
            "{host: a_b}",
            &[
                "error spec.host: \"a_b\" is not a host name: \"a_b\" must be letters, digits and inner hyphens, 63 at most",
            ],
        );
        check(
            &TABLE,
            "{host: a, subsets: [{name: v1}, {name: v1, labels: {'a b': c}}]}",
            &[
                "error spec.subsets[1].name: there are two subsets \"v1\"; rename one",
                "error spec.subsets[1].labels[\"a b\"]: \"a b\" cannot be the key of a label; write name or prefix.example/name, of letters, digits, -, _ and ., with a letter or digit at both ends",
            ],
        );
    }

    #[test]
    fn policies_have_something_in_them() {
        check(
            &TABLE,
            "{host: a, trafficPolicy: {}}",
            &[
                "error spec.trafficPolicy: there is nothing in it; write a policy such as loadBalancer or tls, or remove it",
            ],
        );
        check(
            &TABLE,
            "{host: a, trafficPolicy: {portLevelSettings: [{}]}}",
            &[
                "error spec.trafficPolicy.portLevelSettings[0].port: it is missing; say which port, as in port: {number: 80}",
                "error spec.trafficPolicy.portLevelSettings[0]: there is nothing in it; write a policy such as loadBalancer or tls, or remove it",
            ],
        );
        check(
            &TABLE,
            "{host: a, trafficPolicy: {connectionPool: {}}}",
            &["error spec.trafficPolicy.connectionPool: there is nothing in it; write tcp or http, or remove it"],
        );
    }

    #[test]
    fn pools_and_outliers() {
        check(
            &TABLE,
            "{host: a, trafficPolicy: {connectionPool: {http: {maxRetries: -1}, tcp: {connectTimeout: 1us, idleTimeout: 0s}}, outlierDetection: {consecutiveErrors: 1, consecutiveLocalOriginFailures: 1, maxEjectionPercent: 101}}}",
            &[
                "warning spec.trafficPolicy.outlierDetection.consecutiveErrors: without effect; use consecutive5xxErrors or consecutiveGatewayErrors",
                "error spec.trafficPolicy.outlierDetection.consecutiveLocalOriginFailures: local failures are counted by themselves only with splitExternalLocalOriginErrors: true; set that too",
                "unfit spec.trafficPolicy.outlierDetection.maxEjectionPercent: 101 is not a percentage; use 0 to 100",
                "error spec.trafficPolicy.connectionPool.http.maxRetries: -1 is less than nothing; use 0 or more",
                "error spec.trafficPolicy.connectionPool.tcp.connectTimeout: 0.000001s is too short; use 1ms or more, or remove the field",
            ],
        );
    }

    #[test]
    fn load_balancers() {
        check(
            &TABLE,
            "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {httpCookie: {}, maglev: {tableSize: 4}}, warmup: {aggression: 0.5}, localityLbSetting: {failover: [{from: a, to: a}]}}}}",
            &[
                "unfit spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name: a cookie needs a name",
                "unfit spec.trafficPolicy.loadBalancer.consistentHash.maglev.tableSize: 4 cannot be the size of the table; use a prime number below 5000011, such as 65537",
                "error spec.trafficPolicy.loadBalancer.localityLbSetting.failover[0]: from and to are both \"a\"; they must differ",
                "warning spec.trafficPolicy.loadBalancer.localityLbSetting: traffic fails over when endpoints are found to be bad; add outlierDetection beside loadBalancer",
                "error spec.trafficPolicy.loadBalancer.warmup.duration: it is missing; say how long the warm-up takes",
                "error spec.trafficPolicy.loadBalancer.warmup.aggression: less than 1 would never warm up; use 1 or more",
            ],
        );
    }

    #[test]
    fn client_tls_and_tunnels() {
        check(
            &TABLE,
            "{host: a, trafficPolicy: {tls: {mode: MUTUAL}, tunnel: {protocol: GET, targetHost: a_b, targetPort: 0}}}",
            &[
                "error spec.trafficPolicy.tls.clientCertificate: mode MUTUAL needs the path of a certificate",
                "error spec.trafficPolicy.tls.privateKey: mode MUTUAL needs the path of a private key",
                "error spec.trafficPolicy.tunnel.protocol: not a way to tunnel; use CONNECT or POST",
                "error spec.trafficPolicy.tunnel.targetHost: \"a_b\" is not a host name: \"a_b\" must be letters, digits and inner hyphens, 63 at most",
                "error spec.trafficPolicy.tunnel.targetPort: 0 is not a port; use 1 to 65535",
            ],
        );
    }

    #[test]
    fn export_of_a_rule_for_chosen_clients() {
        check(
            &TABLE,
            "{host: a, exportTo: ['*'], workloadSelector: {matchLabels: {app: a}}}",
            &[
                "error spec.exportTo: a rule with a workloadSelector holds in its own namespace only; write ., or remove exportTo",
            ],
        );
        check(
            &TABLE,
            "{host: a, exportTo: [., default]}",
            &["error spec.exportTo[1]: \"default\" is listed twice (. is default); remove one"],
        );
    }
}

//! Checks that an API server can make by itself: CEL expressions for a ValidatingAdmissionPolicy. Each has an example that it rejects, as
//! `validate` does, and one that it allows; what CEL cannot express is left to the webhook, and what the CRD schemas reject is not repeated.

use crate::kind::Kind;

#[derive(Debug, Clone, Copy)]
pub struct AdmissionRule {
    pub kind: Kind,
    /// The field on which `validate` reports `rejected`.
    pub field: &'static str,
    /// True for an object that may be stored. `spec` is the object's.
    pub expression: &'static str,
    pub message: &'static str,
    /// Specs, in YAML.
    pub rejected: &'static str,
    pub allowed: &'static str,
}

pub const RULES: [AdmissionRule; 13] = [
    AdmissionRule {
        kind: Kind::VirtualService,
        field: "spec.http",
        expression: "!has(spec.http) || spec.http.all(h, has(h.route) || has(h.redirect) || has(h.directResponse) || has(h.delegate))",
        message: "spec.http: every rule needs a route, redirect, directResponse or delegate",
        rejected: "{hosts: [a.example], http: [{timeout: 1s}]}",
        allowed: "{hosts: [a.example], http: [{route: [{destination: {host: a.example}}]}]}",
    },
    AdmissionRule {
        kind: Kind::VirtualService,
        field: "spec.http",
        expression: "!has(spec.http) || spec.http.all(h, !has(h.route) || size(h.route) == 0 || !has(h.redirect))",
        message: "spec.http: a rule has a route or a redirect, not both",
        rejected: "{hosts: [a.example], http: [{redirect: {uri: /b}, route: [{destination: {host: a.example}}]}]}",
        allowed: "{hosts: [a.example], http: [{redirect: {uri: /b}}]}",
    },
    AdmissionRule {
        kind: Kind::VirtualService,
        field: "spec.http",
        expression: "!has(spec.http) || spec.http.all(h, !has(h.route) || h.route.all(r, !has(r.weight) || r.weight >= 0))",
        message: "spec.http: a weight is not negative",
        rejected: "{hosts: [a.example], http: [{route: [{destination: {host: a.example}, weight: -1}, {destination: {host: b.example}, weight: 2}]}]}",
        allowed: "{hosts: [a.example], http: [{route: [{destination: {host: a.example}, weight: 1}, {destination: {host: b.example}, weight: 2}]}]}",
    },
    AdmissionRule {
        kind: Kind::VirtualService,
        field: "spec.http",
        expression: "!has(spec.http) || spec.http.all(h, !has(h.fault) || !has(h.fault.abort) || !has(h.fault.abort.percentage) || !has(h.fault.abort.percentage.value) || (h.fault.abort.percentage.value >= 0.0 && h.fault.abort.percentage.value <= 100.0))",
        message: "spec.http: the percentage of a fault is from 0 to 100",
        rejected: "{hosts: [a.example], http: [{fault: {abort: {httpStatus: 500, percentage: {value: 101}}}, route: [{destination: {host: a.example}}]}]}",
        allowed: "{hosts: [a.example], http: [{fault: {abort: {httpStatus: 500, percentage: {value: 100}}}, route: [{destination: {host: a.example}}]}]}",
    },
    AdmissionRule {
        kind: Kind::DestinationRule,
        field: "spec.subsets",
        expression: "!has(spec.subsets) || spec.subsets.all(s, spec.subsets.filter(o, o.name == s.name).size() == 1)",
        message: "spec.subsets: two subsets have one name",
        rejected: "{host: a.example, subsets: [{name: v1, labels: {v: a}}, {name: v1, labels: {v: b}}]}",
        allowed: "{host: a.example, subsets: [{name: v1, labels: {v: a}}, {name: v2, labels: {v: b}}]}",
    },
    AdmissionRule {
        kind: Kind::DestinationRule,
        field: "spec.trafficPolicy.tls",
        expression: "!has(spec.trafficPolicy) || !has(spec.trafficPolicy.tls) || !has(spec.trafficPolicy.tls.mode) || spec.trafficPolicy.tls.mode != 'MUTUAL' || has(spec.trafficPolicy.tls.credentialName) || (has(spec.trafficPolicy.tls.clientCertificate) && has(spec.trafficPolicy.tls.privateKey))",
        message: "spec.trafficPolicy.tls: MUTUAL needs clientCertificate and privateKey, or credentialName",
        rejected: "{host: a.example, trafficPolicy: {tls: {mode: MUTUAL}}}",
        allowed: "{host: a.example, trafficPolicy: {tls: {mode: MUTUAL, clientCertificate: /c, privateKey: /k}}}",
    },
    AdmissionRule {
        kind: Kind::DestinationRule,
        field: "spec.trafficPolicy.outlierDetection",
        expression: "!has(spec.trafficPolicy) || !has(spec.trafficPolicy.outlierDetection) || !has(spec.trafficPolicy.outlierDetection.maxEjectionPercent) || (spec.trafficPolicy.outlierDetection.maxEjectionPercent >= 0 && spec.trafficPolicy.outlierDetection.maxEjectionPercent <= 100)",
        message: "spec.trafficPolicy.outlierDetection.maxEjectionPercent: it is from 0 to 100",
        rejected: "{host: a.example, trafficPolicy: {outlierDetection: {maxEjectionPercent: 101}}}",
        allowed: "{host: a.example, trafficPolicy: {outlierDetection: {maxEjectionPercent: 100}}}",
    },
    AdmissionRule {
        kind: Kind::Gateway,
        field: "spec.servers",
        expression: "has(spec.servers) && size(spec.servers) > 0",
        message: "spec.servers: a gateway needs at least one server",
        rejected: "{servers: []}",
        allowed: "{servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}",
    },
    AdmissionRule {
        kind: Kind::Gateway,
        field: "spec.servers",
        expression: "!has(spec.servers) || spec.servers.all(s, has(s.tls) || !(s.port.protocol in ['HTTPS', 'TLS']))",
        message: "spec.servers: a port for HTTPS or TLS needs tls",
        rejected: "{servers: [{hosts: ['*'], port: {number: 443, name: https, protocol: HTTPS}}]}",
        allowed: "{servers: [{hosts: ['*'], port: {number: 443, name: https, protocol: HTTPS}, tls: {credentialName: c}}]}",
    },
    AdmissionRule {
        kind: Kind::Gateway,
        field: "spec.servers",
        expression: "!has(spec.servers) || spec.servers.all(s, spec.servers.filter(o, o.port.name == s.port.name).size() == 1)",
        message: "spec.servers: the ports of two servers have one name",
        rejected: "{servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}, {hosts: ['*'], port: {number: 81, name: http, protocol: HTTP}}]}",
        allowed: "{servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}, {hosts: ['*'], port: {number: 81, name: other, protocol: HTTP}}]}",
    },
    AdmissionRule {
        kind: Kind::Gateway,
        field: "spec.servers",
        expression: "!has(spec.servers) || spec.servers.all(s, !has(s.port.number) || (s.port.number >= 0 && s.port.number <= 65535))",
        message: "spec.servers: a port is from 1 to 65535",
        rejected: "{servers: [{hosts: ['*'], port: {number: 70000, name: http, protocol: HTTP}}]}",
        allowed: "{servers: [{hosts: ['*'], port: {number: 65535, name: http, protocol: HTTP}}]}",
    },
    AdmissionRule {
        kind: Kind::Sidecar,
        field: "spec.egress",
        expression: "!has(spec.egress) || spec.egress.all(e, !has(e.hosts) || e.hosts.all(h, h.contains('/')))",
        message: "spec.egress: a host is written NAMESPACE/NAME, such as ./* or */a.example",
        rejected: "{egress: [{hosts: [a.example]}]}",
        allowed: "{egress: [{hosts: ['./*', '*/a.example']}]}",
    },
    AdmissionRule {
        kind: Kind::AuthorizationPolicy,
        field: "spec",
        expression: "!has(spec.action) || spec.action != 'CUSTOM' || has(spec.provider)",
        message: "spec.provider: the action CUSTOM needs a provider of the mesh config",
        rejected: "{action: CUSTOM, rules: [{}]}",
        allowed: "{action: CUSTOM, provider: {name: p}, rules: [{}]}",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Diagnostic, Severity};
    use crate::object::parse_documents;

    fn errors(rule: &AdmissionRule, spec: &str) -> Vec<Diagnostic> {
        let (group, version, kind) = (rule.kind.group(), rule.kind.versions()[0], rule.kind.name());
        let text =
            format!("apiVersion: {group}/{version}\nkind: {kind}\nmetadata: {{name: a, namespace: b}}\nspec: {spec}\n");
        let diagnostics = parse_documents("f", &text).diagnostics;
        diagnostics.into_iter().filter(|diagnostic| diagnostic.severity == Severity::Error).collect()
    }

    #[test]
    fn rejects_what_a_rule_rejects() {
        for rule in RULES {
            let AdmissionRule { field, rejected, allowed, .. } = rule;
            let found = errors(&rule, rejected);
            assert!(found.iter().any(|diagnostic| diagnostic.field.starts_with(field)), "{rejected}: {found:?}");
            assert!(errors(&rule, allowed).is_empty(), "{allowed}: {:?}", errors(&rule, allowed));
        }
    }
}

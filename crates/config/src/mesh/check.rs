//! Validation of a mesh config as in istiod: errors reject the whole text, warnings do not.

mod provider;
mod proxy;

use std::collections::BTreeSet;

use super::dns_name::{trust_domain_fault, wildcard_name_fault};
use super::label_selector::LabelSelector;
use super::{MeshConfig, ProxyConfig, TlsConfig};
use crate::diagnostic::{Diagnostic, Severity};
use crate::duration::Duration;
use crate::validate::locality_notes;

/// Curves that Envoy's TLS library supports.
const CURVES: [&str; 7] = ["P-224", "P-256", "P-384", "P-521", "X25519", "X25519Kyber768Draft00", "X25519MLKEM768"];

impl MeshConfig {
    /// The diagnostics name fields, not locations.
    pub(super) fn check(&self) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        let mut reject = |field: &str, fault: Option<String>| {
            diagnostics.extend(fault.map(|what| Diagnostic::error(what).field(field)));
        };
        reject("proxyListenPort", port_fault(self.proxy_listen_port));
        reject("proxyInboundListenPort", port_fault(self.proxy_inbound_listen_port));
        reject("proxyHttpPort", (self.proxy_http_port != 0).then(|| port_fault(self.proxy_http_port)).flatten());
        reject("connectTimeout", connect_timeout_fault(self.connect_timeout));
        reject("protocolDetectionTimeout", precision_fault(self.protocol_detection_timeout));
        reject("trustDomain", trust_domain_fault(&self.trust_domain));
        for alias in &self.trust_domain_aliases {
            reject("trustDomainAliases", trust_domain_fault(alias));
        }
        for (at, settings) in self.service_settings.iter().enumerate() {
            for (host_at, host) in settings.hosts.iter().enumerate() {
                reject(&format!("serviceSettings[{at}].hosts[{host_at}]"), wildcard_name_fault(host));
            }
        }
        diagnostics.extend(proxy::check(&self.default_config));
        diagnostics.extend(locality_notes(&self.locality_lb_setting));
        diagnostics.extend(provider::check(&self.extension_providers));
        diagnostics.extend(self.mesh_mtls.as_ref().and_then(mesh_curves_note));
        diagnostics.extend(self.tls_defaults.iter().flat_map(default_curves_notes));
        diagnostics.extend(self.selectors().filter_map(|(path, selector)| selector_note(&path, selector)));
        diagnostics
    }

    fn selectors(&self) -> impl Iterator<Item = (String, &LabelSelector)> {
        let discovery = self.discovery_selectors.iter().enumerate();
        let discovery = discovery.map(|(at, selector)| (format!("discoverySelectors[{at}]"), selector));
        let scopes = self.service_scope_configs.iter().enumerate().flat_map(|(at, scope)| {
            let path = format!("serviceScopeConfigs[{at}]");
            let namespaces = scope.namespace_selector.iter().map({
                let path = path.clone();
                move |selector| (format!("{path}.namespaceSelector"), selector)
            });
            namespaces.chain(scope.services_selector.iter().map(move |s| (format!("{path}.servicesSelector"), s)))
        });
        let policies =
            self.service_entry_visibility.iter().flat_map(|visibility| visibility.policies.iter().enumerate());
        let policies = policies.flat_map(|(at, policy)| {
            let rules = policy.matching_rules.iter().enumerate();
            rules.filter_map(move |(rule_at, rule)| {
                let path = format!("serviceEntryVisibility.policies[{at}].matchingRules[{rule_at}].namespaceSelector");
                Some((path, rule.namespace_selector.as_ref()?))
            })
        });
        discovery.chain(scopes).chain(policies)
    }
}

/// The errors of proxy settings: field and reason.
pub(super) fn check_proxy(config: &ProxyConfig) -> Vec<String> {
    let errors = proxy::check(config).into_iter().filter(|found| found.severity == Severity::Error);
    errors.map(|found| format!("{}: {}", found.field.trim_start_matches("defaultConfig."), found.what)).collect()
}

pub(super) fn port_fault(port: u32) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| format!("{port} is not a port; use 1 to 65535"))
}

/// istiod's limits of connect timeouts.
fn connect_timeout_fault(time: Duration) -> Option<String> {
    let (shortest, longest) = (Duration::from_millis(1), Duration::from_secs(3600));
    if time < shortest || time > longest {
        return Some(format!("{time} is out of range; use 1ms to 1h"));
    }
    precision_fault(time)
}

fn precision_fault(time: Duration) -> Option<String> {
    (time.nanos % 1_000_000 != 0).then(|| format!("{time} is too precise; use whole milliseconds"))
}

fn mesh_curves_note(tls: &TlsConfig) -> Option<Diagnostic> {
    let what = "the curves of mutual TLS cannot be changed; remove ecdhCurves, or set them in tlsDefaults";
    (!tls.ecdh_curves.is_empty()).then(|| Diagnostic::error(what).field("meshMTLS.ecdhCurves"))
}

fn default_curves_notes(tls: &TlsConfig) -> Vec<Diagnostic> {
    let mut seen = BTreeSet::new();
    let mut diagnostics = Vec::new();
    for (at, curve) in tls.ecdh_curves.iter().enumerate() {
        let what = if !curve.is_empty() && !CURVES.contains(&curve.as_str()) {
            format!("{curve:?} is not a curve, left out; known are {}", CURVES.join(", "))
        } else if !seen.insert(curve) {
            format!("{curve:?} is listed twice")
        } else {
            continue;
        };
        diagnostics.push(Diagnostic::warning(what).field(format!("tlsDefaults.ecdhCurves[{at}]")));
    }
    diagnostics
}

fn selector_note(path: &str, selector: &LabelSelector) -> Option<Diagnostic> {
    let (at, fault) = selector.fault()?;
    let what = format!("{fault}; the selector chooses nothing");
    Some(Diagnostic::warning(what).field(format!("{path}.matchExpressions[{at}]")))
}

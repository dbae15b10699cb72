//! What istiod refuses in a mesh config (errors: the whole text is dropped) and what it only complains about (warnings).

mod provider;
mod proxy;

use std::collections::BTreeSet;

use super::dns_name::{trust_domain_fault, wildcard_name_fault};
use super::label_selector::LabelSelector;
use super::{MeshConfig, TlsConfig};
use crate::duration::Duration;
use crate::note::Note;
use crate::validate::locality_notes;

/// Curves that Envoy's TLS library knows.
const CURVES: [&str; 7] = ["P-224", "P-256", "P-384", "P-521", "X25519", "X25519Kyber768Draft00", "X25519MLKEM768"];

impl MeshConfig {
    /// The notes name fields, not places.
    pub(super) fn check(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut refuse =
            |field: &str, fault: Option<String>| notes.extend(fault.map(|what| Note::error(what).field(field)));
        refuse("proxyListenPort", port_fault(self.proxy_listen_port));
        refuse("proxyInboundListenPort", port_fault(self.proxy_inbound_listen_port));
        refuse("proxyHttpPort", (self.proxy_http_port != 0).then(|| port_fault(self.proxy_http_port)).flatten());
        refuse("connectTimeout", connect_timeout_fault(self.connect_timeout));
        refuse("protocolDetectionTimeout", precision_fault(self.protocol_detection_timeout));
        refuse("trustDomain", trust_domain_fault(&self.trust_domain));
        for alias in &self.trust_domain_aliases {
            refuse("trustDomainAliases", trust_domain_fault(alias));
        }
        for (at, settings) in self.service_settings.iter().enumerate() {
            for (host_at, host) in settings.hosts.iter().enumerate() {
                refuse(&format!("serviceSettings[{at}].hosts[{host_at}]"), wildcard_name_fault(host));
            }
        }
        notes.extend(proxy::check(&self.default_config));
        notes.extend(locality_notes(&self.locality_lb_setting));
        notes.extend(provider::check(&self.extension_providers));
        notes.extend(self.mesh_mtls.as_ref().and_then(mesh_curves_note));
        notes.extend(self.tls_defaults.iter().flat_map(default_curves_notes));
        notes.extend(self.selectors().filter_map(|(path, selector)| selector_note(&path, selector)));
        notes
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

pub(super) fn port_fault(port: u32) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| format!("{port} is not a port; use 1 to 65535"))
}

/// istiod keeps times of connections between these.
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

fn mesh_curves_note(tls: &TlsConfig) -> Option<Note> {
    let what = "the curves of mutual TLS cannot be changed; remove ecdhCurves, or set them in tlsDefaults";
    (!tls.ecdh_curves.is_empty()).then(|| Note::error(what).field("meshMTLS.ecdhCurves"))
}

fn default_curves_notes(tls: &TlsConfig) -> Vec<Note> {
    let mut seen = BTreeSet::new();
    let mut notes = Vec::new();
    for (at, curve) in tls.ecdh_curves.iter().enumerate() {
        let what = if !curve.is_empty() && !CURVES.contains(&curve.as_str()) {
            format!("{curve:?} is not a curve, left out; known are {}", CURVES.join(", "))
        } else if !seen.insert(curve) {
            format!("{curve:?} is listed twice")
        } else {
            continue;
        };
        notes.push(Note::warning(what).field(format!("tlsDefaults.ecdhCurves[{at}]")));
    }
    notes
}

fn selector_note(path: &str, selector: &LabelSelector) -> Option<Note> {
    let (at, fault) = selector.fault()?;
    let what = format!("{fault}; the selector chooses nothing");
    Some(Note::warning(what).field(format!("{path}.matchExpressions[{at}]")))
}

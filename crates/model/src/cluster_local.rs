//! Cluster-local services (`serviceSettings.clusterLocal`): proxies of other clusters get no endpoints of them.

use config::host::Host;
use config::mesh::{MeshConfig, ServiceSettings};

/// Cluster-local by default, below the cluster's domain.
const DEFAULTS: [&str; 2] = ["*.kube-system.svc", "kubernetes.default.svc"];

/// The exact name decides, else the longest wildcard; of equal ones the last. A default applies unless a `false` covers it.
pub(crate) fn is_cluster_local(config: &MeshConfig, domain: &str, host: &Host) -> bool {
    let configured: Vec<(Host, bool)> = config.service_settings.iter().flat_map(hosts_of).collect();
    let denied = |own: &Host| configured.iter().any(|(pattern, local)| !local && own.is_subset_of(pattern));
    let defaults = defaults(config, domain).filter(|own| !denied(own)).map(|own| (own, true));
    let all = configured.iter().cloned().chain(defaults);
    let fitting = all.filter(|(pattern, _)| host.is_subset_of(pattern));
    fitting.max_by_key(|(pattern, _)| (pattern == host, pattern.as_str().len())).is_some_and(|(_, local)| local)
}

fn hosts_of(entry: &ServiceSettings) -> impl Iterator<Item = (Host, bool)> {
    let local = entry.settings.is_some_and(|settings| settings.cluster_local);
    entry.hosts.iter().map(move |host| (Host::new(host), local))
}

fn defaults(config: &MeshConfig, domain: &str) -> impl Iterator<Item = Host> {
    let address = config.default_config.discovery_address.as_deref().unwrap_or_default();
    let control_plane = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let below = move |name: &str| match name.ends_with(domain) {
        true => Host::new(name),
        false => Host::new(&format!("{name}.{domain}")),
    };
    DEFAULTS.into_iter().chain([control_plane]).map(below)
}

#[cfg(test)]
mod tests {
    use config::mesh::ServiceSettingsSettings;

    use super::*;

    fn check(settings: &[(&str, bool)], host: &str, want: bool) {
        let setting = |&(host, cluster_local): &(&str, bool)| ServiceSettings {
            settings: Some(ServiceSettingsSettings { cluster_local }),
            hosts: vec![host.to_owned()],
        };
        let service_settings = settings.iter().map(setting).collect();
        let config = MeshConfig { service_settings, ..MeshConfig::default() };
        assert_eq!(is_cluster_local(&config, "cluster.local", &Host::new(host)), want, "{host}");
    }

    #[test]
    fn exact_names_take_precedence_over_wildcards_and_later_entries_over_earlier_ones() {
        let settings = [("*.org", true), ("a.b.org", false), ("*.b.org", true), ("*.org", false)];
        check(&settings, "a.b.org", false);
        check(&settings, "c.b.org", true);
        check(&settings, "c.org", false);
    }

    #[test]
    fn default_hosts_are_cluster_local_unless_disabled() {
        for host in ["dns.kube-system", "kubernetes.default", "istiod.istio-system"] {
            let host = format!("{host}.svc.cluster.local");
            check(&[], &host, true);
            check(&[("*", false)], &host, false);
        }
        check(&[], "front.shop.svc.cluster.local", false);
    }
}

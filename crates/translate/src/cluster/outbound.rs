//! The clusters of one imported service port: the whole service, and each subset of its DestinationRule.

use config::kinds::destination_rule::{Subset, TrafficPolicy};
use model::{LocalityPreference, MergedDestinationRule, Mesh, Placement, Port, Service};
use wire::envoy::config::cluster::v3::{Cluster, cluster::CommonLbConfig};
use wire::envoy::config::endpoint::v3::LocalityLbEndpoints;
use wire::envoy::r#type::v3::Percent;

use super::policy::{self, Draft};
use super::{connection_pool, load_balancer, outlier, protocol, resolution, settings, tls_mode};
use crate::endpoint;
use crate::names::{ClusterName, stat_name};
use crate::proto::{text, truth};
use crate::stat_pattern::{self, PatternValues};
use crate::translated::Translated;

pub(super) fn clusters(mesh: &Mesh, placement: &Placement, service: &Service, port: &Port) -> Vec<Translated<Cluster>> {
    let rule = placement.destination_rule(&service.host).map(|rule| &**rule);
    all(Target { mesh, placement, service, port, rule, subset: None, client: Client::Own })
}

pub(super) fn sni_clusters(
    mesh: &Mesh,
    placement: &Placement,
    service: &Service,
    port: &Port,
) -> Vec<Translated<Cluster>> {
    let rule = placement.destination_rule(&service.host).map(|rule| &**rule);
    all(Target { mesh, placement, service, port, rule, subset: None, client: Client::Through })
}

fn all(whole: Target<'_>) -> Vec<Translated<Cluster>> {
    if whole.has_no_endpoints() {
        return Vec::new();
    }
    let rule = whole.rule.filter(|_| !whole.is_dynamic());
    let subsets = rule.map(|rule| rule.subsets.as_slice()).unwrap_or_default();
    let subsets = subsets.iter().map(|subset| Target { subset: Some(subset), ..whole });
    let subsets = subsets.filter(|subset| !subset.has_no_endpoints());
    std::iter::once(whole).chain(subsets).map(Target::cluster).collect()
}

#[derive(Clone, Copy)]
struct Target<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    service: &'a Service,
    port: &'a Port,
    rule: Option<&'a MergedDestinationRule>,
    /// `None`: the whole service.
    subset: Option<&'a Subset>,
    client: Client,
}

/// Who originates the TLS of the connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    /// This proxy.
    Own,
    /// The client: mutual TLS is passed through.
    Through,
}

impl Target<'_> {
    fn cluster(self) -> Translated<Cluster> {
        let policy = self.rule.and_then(|rule| rule.effective(self.subset_name(), self.port.number));
        let draft = self.draft(policy.as_ref());
        let rule = self.rule.into_iter().flat_map(|rule| rule.made_from.iter().cloned());
        Translated::new(draft.finish(), rule.chain([self.service.made_from.clone()]))
    }

    fn draft(self, policy: Option<&TrafficPolicy>) -> Draft {
        let (mesh, config) = (self.mesh, &self.mesh.config);
        let mut draft = self.plain();
        let pool = policy::connection_pool(policy, config);
        if policy::upgrades(pool, self.port.protocol, config) {
            draft.upgrade();
        }
        if let Some(pool) = pool {
            connection_pool::apply(&mut draft, mesh, pool);
        }
        if let Some(budget) = policy.and_then(|policy| policy.retry_budget.as_ref()) {
            connection_pool::apply_retry_budget(&mut draft, budget);
        }
        self.balance(&mut draft, policy);
        if self.client == Client::Own {
            if self.subset.is_none() && self.service.keeps_sessions() {
                load_balancer::keep_draining(&mut draft);
            }
            self.secure(&mut draft, policy);
        }
        self.annotate(&mut draft.cluster, policy);
        draft
    }

    fn secure(self, draft: &mut Draft, policy: Option<&TrafficPolicy>) {
        let tls = policy.and_then(|policy| policy.tls.as_ref());
        let passthrough = model::is_passthrough(self.own_policy());
        let automatic = tls_mode::is_automatic(self.mesh, self.service, self.port, passthrough);
        tls_mode::apply(draft, &self.peer(policy), tls, automatic);
        if let Some(wanted) = policy.and_then(|policy| policy.proxy_protocol) {
            tls_mode::apply_proxy_protocol(draft, wanted);
        }
    }

    /// The protocol options that the port needs.
    fn plain(self) -> Draft {
        let (service, port) = (self.service, self.port);
        let mut cluster = Cluster {
            common_lb_config: Some(CommonLbConfig::default()),
            filters: settings::peer_filters(self.placement),
            metadata: (!self.is_dynamic()).then(|| settings::service_metadata(std::iter::once(service))),
            ..settings::base(self.mesh, self.name().text())
        };
        let named =
            || PatternValues { subset: self.subset_name().to_owned(), ..PatternValues::port(service, port, Some(0)) };
        if let Some(stat) = stat_pattern::expand(&self.mesh.config.outbound_cluster_stat_name, named) {
            cluster.alt_stat_name = stat_name(&stat);
        }
        Draft { cluster, options: protocol::options(self.placement, port.protocol) }
    }

    fn balance(self, draft: &mut Draft, policy: Option<&TrafficPolicy>) {
        let config = &self.mesh.config;
        let sends_unready = self.service.sends_unready();
        if let Some(wanted) = model::outlier_detection(policy, config) {
            outlier::apply(draft, wanted, sends_unready);
        }
        if sends_unready {
            draft.common_lb_config().healthy_panic_threshold = Some(Percent { value: 0.0 });
        }
        load_balancer::apply_locality(draft, &LocalityPreference::of(policy, self.service, config));
        if self.is_dynamic() {
            draft.cluster.common_lb_config = None;
            resolution::to_dynamic_dns(&mut draft.cluster, self.service);
        } else if self.is_original(policy) {
            resolution::to_original(&mut draft.cluster);
            resolution::override_port(&mut draft.cluster, self.service, self.port);
            // As in istiod: a rule that selects PASSTHROUGH removes the host names, and leaves the DNS settings.
            if self.uses_dns() {
                resolution::use_dns(&mut draft.cluster, self.mesh, self.placement, self.service);
            }
        } else {
            self.resolve(&mut draft.cluster);
            load_balancer::apply(draft, policy.and_then(|policy| policy.load_balancer.as_ref()));
        }
    }

    fn resolve(self, cluster: &mut Cluster) {
        if !self.service.is_resolved_by_name() {
            return resolution::use_eds(cluster);
        }
        resolution::to_names(cluster, self.mesh, self.placement, self.service, self.named_endpoints());
    }

    /// The endpoints of a cluster that embeds them.
    fn named_endpoints(self) -> Vec<LocalityLbEndpoints> {
        let Self { mesh, placement, service, port, rule, .. } = self;
        let chosen = endpoint::EndpointSelection { mesh, placement, service, port, rule, subset: self.subset_name() };
        chosen.localities(self.client == Client::Through)
    }

    fn annotate(self, cluster: &mut Cluster, policy: Option<&TrafficPolicy>) {
        if self.service.external && self.subset.is_none() {
            settings::annotate(cluster.metadata.get_or_insert_default(), [("external", truth(true))]);
        }
        let Some(rule) = self.rule else { return };
        let metadata = cluster.metadata.get_or_insert_default();
        settings::annotate(metadata, [("config", settings::rule_path(rule))]);
        if let Some(subset) = self.subset {
            settings::annotate(metadata, [("subset", text(&subset.name))]);
        }
        // TLS configured by a user comes with the user's ALPN.
        if tls_mode::is_user_tls(policy.and_then(|policy| policy.tls.as_ref())) {
            settings::annotate(metadata, [("alpn_override", text("false"))]);
        }
    }

    fn peer(&self, policy: Option<&TrafficPolicy>) -> tls_mode::Peer<'_> {
        tls_mode::Peer {
            mesh: self.mesh,
            placement: self.placement,
            service: self.service,
            sni: if self.is_dynamic() { String::new() } else { self.name().sni() },
            original: self.is_original(policy),
            selected: self.rule.is_some_and(|rule| rule.selector.is_some()),
        }
    }

    /// With passthrough the client has chosen the service already.
    fn is_dynamic(self) -> bool {
        self.service.is_dynamic() && self.client == Client::Own
    }

    fn is_original(self, policy: Option<&TrafficPolicy>) -> bool {
        resolution::is_original(self.placement, self.service) || model::is_passthrough(policy) || self.passes_through()
    }

    /// A service with PASSTHROUGH load balancing has it for all its subsets.
    fn passes_through(self) -> bool {
        let whole = self.rule.and_then(|rule| rule.port_policy(self.port.number));
        let own = self.subset.and_then(|subset| subset.traffic_policy.as_deref());
        [whole.as_ref(), own].into_iter().any(model::is_passthrough)
    }

    /// Also if the rule of a port or of the whole service selects PASSTHROUGH.
    fn uses_dns(self) -> bool {
        self.service.is_resolved_by_name() && (self.subset.is_none() || !self.passes_through())
    }

    /// A DNS cluster without host names is not sent.
    fn has_no_endpoints(self) -> bool {
        self.uses_dns() && self.named_endpoints().is_empty()
    }

    /// As configured for the service or subset, ignoring port-level settings.
    fn own_policy(&self) -> Option<&TrafficPolicy> {
        match self.subset {
            Some(subset) => subset.traffic_policy.as_deref(),
            None => self.rule.and_then(|rule| rule.policy.as_deref()),
        }
    }

    fn subset_name(&self) -> &str {
        self.subset.map_or("", |subset| &subset.name)
    }

    fn name(self) -> ClusterName {
        let (port, subset, host) = (self.port.number, self.subset_name().to_owned(), self.service.host.clone());
        match self.client {
            Client::Own => ClusterName::Outbound { port, subset, host },
            Client::Through => ClusterName::Sni { port, subset, host },
        }
    }
}

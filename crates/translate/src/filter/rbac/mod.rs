//! Authorization policies as RBAC filters: one per action, with all policies of that action for the workload. Rules are in `rule`.

mod permission;
mod principal;
mod rule;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Authorization, CustomAuthorization, Placement, WorkloadPolicy};
use wire::any;
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::config::rbac::v3::{self as config, rbac::Action};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use wire::envoy::extensions::filters::{http, network};

use super::{ext_authz, http_filter, network_filter};

pub(super) const HTTP: &str = "envoy.filters.http.rbac";
pub(super) const NETWORK: &str = "envoy.filters.network.rbac";

/// The prefix under which a filter reports the result of its shadow rules.
pub(super) const CUSTOM_PREFIX: &str = "istio_ext_authz_";

/// The kind of a filter chain: HTTP rules do not apply to TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    Http,
    Network,
}

/// External authorization filters, each behind an RBAC filter that decides whether to call the provider.
pub(super) fn custom_http(placement: &Placement) -> Vec<HttpFilter> {
    let mut filters = Vec::new();
    for (provider, custom) in &placement.policies.authorization.custom {
        let rules = custom_rules(provider, custom, Chain::Http);
        let asked = custom.authorizer.as_ref().and_then(|authorizer| ext_authz::http(provider, authorizer));
        filters.push(http_rbac(if asked.is_some() { rules.shadow_rules() } else { rules.deny_rules() }));
        filters.extend(asked);
    }
    filters
}

pub(super) fn custom_network(authorization: &Authorization) -> Vec<Filter> {
    let mut filters = Vec::new();
    for (provider, custom) in &authorization.custom {
        let rules = custom_rules(provider, custom, Chain::Network);
        match custom.authorizer.as_ref().map(|authorizer| ext_authz::network(provider, authorizer)) {
            Some(ext_authz::OnTcp::Filter(filter)) => filters.extend([network_rbac(rules.shadow_rules()), *filter]),
            // An HTTP-only provider is skipped.
            Some(ext_authz::OnTcp::HttpOnly) => {}
            Some(ext_authz::OnTcp::Unsupported) | None => filters.push(network_rbac(rules.deny_rules())),
        }
    }
    filters
}

pub(super) fn local_http(placement: &Placement) -> Vec<HttpFilter> {
    local(&placement.policies.authorization, Chain::Http).map(http_rbac).collect()
}

pub(super) fn local_network(authorization: &Authorization) -> Vec<Filter> {
    local(authorization, Chain::Network).map(network_rbac).collect()
}

/// The rules of one filter, enforced ones and shadow ones (dry run). `None`: no policy of that sort.
struct Rules {
    enforced: Option<config::Rbac>,
    shadow: Option<config::Rbac>,
    shadow_prefix: &'static str,
}

fn local(policies: &Authorization, chain: Chain) -> impl Iterator<Item = Rules> {
    let by_action = [(Action::Log, &policies.audit), (Action::Deny, &policies.deny), (Action::Allow, &policies.allow)];
    by_action.into_iter().filter(|(_, policies)| !policies.is_empty()).map(move |(action, policies)| {
        let sort = |dry_run: bool| -> Option<config::Rbac> {
            let chosen: Vec<_> = policies.iter().filter(|policy| policy.dry_run == dry_run).collect();
            (!chosen.is_empty()).then(|| rbac(action, chosen, "", chain))
        };
        let shadow = sort(true);
        let shadow_prefix = match shadow.as_ref().map(|_| action) {
            Some(Action::Deny) => "istio_dry_run_deny_",
            Some(Action::Log) => "",
            // Also without shadow rules: so does istiod, pinned by parity case authz-custom.
            Some(Action::Allow) | None => "istio_dry_run_allow_",
        };
        Rules { enforced: sort(false), shadow, shadow_prefix }
    })
}

/// The policies of a provider: enforced ones and dry-run ones.
struct CustomRules {
    enforced: config::Rbac,
    dry: config::Rbac,
}

fn custom_rules(provider: &str, custom: &CustomAuthorization, chain: Chain) -> CustomRules {
    let prefix = match provider {
        "" => format!("{}-", ext_authz::POLICY_PREFIX),
        named => format!("{}-{named}-", ext_authz::POLICY_PREFIX),
    };
    let sort = |dry_run: bool| {
        let chosen = custom.policies.iter().filter(|policy| policy.dry_run == dry_run);
        rbac(Action::Deny, chosen, &prefix, chain)
    };
    CustomRules { enforced: sort(false), dry: sort(true) }
}

impl CustomRules {
    /// Shadow rules find the matching policy; the external authorization filter decides.
    fn shadow_rules(self) -> Rules {
        // As in istiod dry-run rules are enforced here.
        let dry = Some(self.dry).filter(|rules| !rules.policies.is_empty());
        Rules { enforced: dry, shadow: Some(self.enforced), shadow_prefix: CUSTOM_PREFIX }
    }

    /// The provider is unusable: matching requests are denied.
    fn deny_rules(self) -> Rules {
        let renamed = self.enforced.policies.into_iter();
        let policies = renamed.map(|(name, policy)| (format!("{name}-deny-due-to-bad-CUSTOM-action"), policy));
        let enforced = config::Rbac { policies: policies.collect(), ..self.enforced };
        Rules { enforced: Some(enforced), shadow: None, shadow_prefix: "" }
    }
}

fn rbac<'a>(
    action: Action,
    policies: impl IntoIterator<Item = &'a Arc<WorkloadPolicy>>,
    prefix: &str,
    chain: Chain,
) -> config::Rbac {
    let mut made = BTreeMap::new();
    for policy in policies {
        let name = |at: usize| format!("{prefix}ns[{}]-policy[{}]-rule[{at}]", policy.namespace, policy.name);
        if policy.rules.is_empty() {
            made.insert(name(0), rule::never());
        }
        let rules = policy.rules.iter().enumerate();
        made.extend(rules.filter_map(|(at, rule)| Some((name(at), rule::policy(rule, chain, action)?))));
    }
    config::Rbac { action: action.into(), policies: made, ..config::Rbac::default() }
}

fn http_rbac(Rules { enforced, shadow, shadow_prefix }: Rules) -> HttpFilter {
    let config = http::rbac::v3::Rbac {
        rules: enforced,
        shadow_rules: shadow,
        shadow_rules_stat_prefix: shadow_prefix.to_owned(),
        ..http::rbac::v3::Rbac::default()
    };
    http_filter(HTTP, any::pack(&config))
}

fn network_rbac(Rules { enforced, shadow, shadow_prefix }: Rules) -> Filter {
    let config = network::rbac::v3::Rbac {
        rules: enforced,
        stat_prefix: "tcp.".to_owned(),
        shadow_rules: shadow,
        shadow_rules_stat_prefix: shadow_prefix.to_owned(),
        ..network::rbac::v3::Rbac::default()
    };
    network_filter(NETWORK, &config)
}

//! HTTP_FILTER patches, and route patches of inline routes, in an HTTP connection manager.

use std::sync::Arc;

use config::kinds::envoy_filter::{Operation, SubFilterMatch};
use model::{Patch, Placement};
use wire::envoy::config::listener::v3::{Filter, filter};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier, http_filter::ConfigType,
};

use super::{Applied, any, list, network, route, value};
use crate::hcm;

/// `asked`: the patches that match the chain. The connection manager is decoded only if some of them are for it.
pub(super) fn patch(asked: &[&Arc<Patch>], filter: &mut Filter, applied: &mut Applied) {
    let own: Vec<_> = asked.iter().filter(|patch| network::matches(patch, filter)).collect();
    if own.is_empty() {
        return;
    }
    let Some(mut manager) = unpack(filter) else { return };
    let filters = &mut manager.http_filters;
    for patch in &own {
        let wanted = sub_filter_match(patch);
        let named = |filter: &HttpFilter| wanted.is_some_and(|wanted| wanted.name == filter.name);
        applied.record_if(list::edit(filters, patch, wanted.map(|_| &named as &dyn Fn(&_) -> bool)), patch);
    }
    for filter in filters {
        for patch in own.iter().filter(|patch| patch.operation == Operation::Merge) {
            if sub_filter_match(patch).is_none_or(|wanted| wanted.name == filter.name) {
                applied.record_if(merge(filter, patch), patch);
            }
        }
    }
    repack(filter, &manager);
}

/// Inline routes.
pub(super) fn patch_routes(placement: &Placement, filter: &mut Filter, applied: &mut Applied) {
    if filter.name != hcm::NAME {
        return;
    }
    let Some(mut manager) = unpack(filter) else { return };
    if let Some(RouteSpecifier::RouteConfig(routes)) = &mut manager.route_specifier {
        let before = applied.0.len();
        route::patch(&placement.patches.inbound, placement, routes, applied);
        if applied.0.len() > before || route::concerns(&placement.patches.inbound, placement, &routes.name) {
            repack(filter, &manager);
        }
    }
}

fn unpack(filter: &Filter) -> Option<HttpConnectionManager> {
    match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config)) => wire::any::unpack(config),
        _ => None,
    }
}

fn repack(filter: &mut Filter, manager: &HttpConnectionManager) {
    filter.config_type = Some(filter::ConfigType::TypedConfig(wire::any::pack(manager)));
}

fn merge(filter: &mut HttpFilter, patch: &Patch) -> bool {
    let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else { return false };
    let Some(wanted) = value::message::<HttpFilter>(patch) else { return false };
    if let Some(ConfigType::TypedConfig(wanted)) = &wanted.config_type
        && !any::merge(config, wanted)
    {
        return false;
    }
    if !wanted.name.is_empty() {
        filter.name = wanted.name;
    }
    true
}

fn sub_filter_match(patch: &Patch) -> Option<&SubFilterMatch> {
    network::filter_match(patch)?.sub_filter.as_ref()
}

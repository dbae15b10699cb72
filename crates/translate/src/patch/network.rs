//! NETWORK_FILTER patches.

use std::sync::Arc;

use config::kinds::envoy_filter::{ApplyTo, FilterMatch, Operation};
use model::{Patch, PatchSet};
use wire::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter::ConfigType};

use super::{Applied, any, chain, http, list, listener, value};
use crate::hcm;

/// Insertions and removals first, then merges: an inserted filter is merged into like the others.
pub(super) fn patch(set: &PatchSet, parent: &Listener, patched: &mut FilterChain, applied: &mut Applied) {
    let asked = |kind: ApplyTo| -> Vec<_> {
        let here = |patch: &&Arc<Patch>| listener::matches(patch, parent) && chain::matches(patch, parent, patched);
        set.of(kind).iter().filter(here).collect()
    };
    let (own, within) = (asked(ApplyTo::NetworkFilter), asked(ApplyTo::HttpFilter));
    for patch in &own {
        let wanted = filter_match(patch);
        let named = |filter: &Filter| wanted.is_some_and(|wanted| wanted.name == filter.name);
        let done = list::edit(&mut patched.filters, patch, wanted.map(|_| &named as &dyn Fn(&_) -> bool));
        applied.record_if(done, patch);
    }
    for filter in &mut patched.filters {
        for patch in own.iter().filter(|patch| patch.operation == Operation::Merge) {
            if matches(patch, filter) {
                applied.record_if(merge(filter, patch), patch);
            }
        }
        if filter.name == hcm::NAME {
            http::patch(&within, filter, applied);
        }
    }
}

/// The name may change too. A filter without a configuration is not merged into.
fn merge(filter: &mut Filter, patch: &Patch) -> bool {
    let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else { return false };
    let Some(wanted) = value::message::<Filter>(patch) else { return false };
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

pub(super) fn filter_match(patch: &Patch) -> Option<&FilterMatch> {
    listener::filter_chain_match(patch)?.filter.as_ref()
}

pub(super) fn matches(patch: &Patch, filter: &Filter) -> bool {
    filter_match(patch).is_none_or(|wanted| wanted.name == filter.name)
}

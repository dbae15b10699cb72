//! The VirtualServices of one egress listener, in order of precedence, and those that apply to a host.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::host::Host;
use config::store::Name;

use super::ResolvedVirtualService;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct VirtualServices {
    all: Vec<Arc<ResolvedVirtualService>>,
    by_host: Arc<ByHost>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ByHost {
    exact: BTreeMap<Host, Vec<usize>>,
    /// Of equal wildcards the first.
    wildcard: BTreeMap<Host, usize>,
}

impl VirtualServices {
    pub(crate) fn new(all: Vec<Arc<ResolvedVirtualService>>) -> Self {
        let mut by_host = ByHost::default();
        for (index, object) in all.iter().enumerate() {
            for host in &object.hosts {
                if host.is_wildcard() {
                    by_host.wildcard.entry(host.clone()).or_insert(index);
                } else {
                    let indices = by_host.exact.entry(host.clone()).or_default();
                    if indices.last() != Some(&index) {
                        indices.push(index);
                    }
                }
            }
        }
        Self { all, by_host: Arc::new(by_host) }
    }

    /// Replaces one by another with the same hosts.
    pub(crate) fn replace(&mut self, old: &Arc<ResolvedVirtualService>, new: &Arc<ResolvedVirtualService>) {
        if let Some(current) = self.all.iter_mut().find(|current| Arc::ptr_eq(current, old)) {
            *current = new.clone();
        }
    }

    pub fn named(&self, name: &Name) -> Option<&Arc<ResolvedVirtualService>> {
        self.all.iter().find(|object| object.name == name.name && object.namespace == name.namespace)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResolvedVirtualService>> {
        self.all.iter()
    }

    /// Those whose http routes apply to a service, best first: the ones with its exact host, else the one with the most specific wildcard.
    /// A later one counts only where the earlier ones have no route for the client.
    pub fn for_service(&self, host: &Host) -> Vec<&Arc<ResolvedVirtualService>> {
        let named = self.by_host.exact.get(host).map(Vec::as_slice).unwrap_or_default();
        if !named.is_empty() {
            return named.iter().map(|&index| &self.all[index]).collect();
        }
        let matching = self.by_host.wildcard.iter().filter(|(wildcard, _)| host.is_subset_of(wildcard));
        let best = matching.max_by_key(|(wildcard, _)| wildcard.as_str().len());
        best.map(|(_, &index)| &self.all[index]).into_iter().collect()
    }

    /// Those with tcp or tls routes and a matching host, in order.
    pub fn for_tcp(&self, host: &Host) -> Vec<&Arc<ResolvedVirtualService>> {
        let routed = self.all.iter().filter(|object| !object.tcp.is_empty() || !object.tls.is_empty());
        routed.filter(|object| object.hosts.iter().any(|own| own.matches(host))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_service::{Audience, PathPrefix};

    fn object(name: &str, hosts: &[&str]) -> Arc<ResolvedVirtualService> {
        Arc::new(ResolvedVirtualService {
            name: name.into(),
            namespace: "shop".into(),
            hosts: hosts.iter().map(|host| Host::new(host)).collect(),
            http: Vec::new(),
            tls: Vec::new(),
            tcp: Vec::new(),
            made_from: Vec::new(),
            prefix: PathPrefix::Text,
            gateways: Vec::new(),
            created: None,
            audience: Audience::Everybody,
        })
    }

    #[test]
    fn an_exact_host_beats_wildcards_and_the_longest_wildcard_the_rest() {
        let all = VirtualServices::new(vec![
            object("wide", &["*.example"]),
            object("near", &["*.shop.example"]),
            object("own", &["cart.shop.example"]),
            object("late", &["*.shop.example", "cart.shop.example"]),
        ]);
        let names = |host: &str| -> Vec<_> {
            all.for_service(&Host::new(host)).into_iter().map(|object| object.name.to_string()).collect()
        };
        assert_eq!(names("cart.shop.example"), ["own", "late"]);
        assert_eq!(names("front.shop.example"), ["near"]);
        assert_eq!(names("rates.bank.example"), ["wide"]);
        assert_eq!(names("elsewhere"), [""; 0]);
    }
}

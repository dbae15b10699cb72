//! Which endpoints traffic prefers by place: weights over localities, or priorities to fall back through.

use std::collections::{BTreeMap, BTreeSet};

use config::kinds::destination_rule::{Distribute, Failover, LocalityLoadBalancerSetting};
use config::labels::Labels;
use config::locality::Locality;
use model::{Endpoint, NetworkGateway};

/// Endpoints of one locality, or those among them of one priority.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group<'a> {
    pub(crate) place: &'a Locality,
    pub(crate) members: Vec<Member<'a>>,
    pub(crate) weight: u32,
    /// 0 is used first.
    pub(crate) priority: u32,
}

/// One that traffic goes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Member<'a> {
    pub(crate) via: Via<'a>,
    pub(crate) weight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Via<'a> {
    Itself(&'a Endpoint),
    /// It stands for the endpoints behind it.
    Gateway(&'a NetworkGateway),
}

impl<'a> Member<'a> {
    pub(crate) fn itself(endpoint: &'a Endpoint, scale: u32) -> Self {
        Self { via: Via::Itself(endpoint), weight: endpoint.weight.saturating_mul(scale) }
    }

    /// What failover chooses by.
    fn labels(&self, cluster: &str) -> Labels {
        match self.via {
            Via::Itself(endpoint) => endpoint.placed_labels(cluster),
            Via::Gateway(gateway) => gateway.placed_labels(),
        }
    }
}

impl<'a> Group<'a> {
    pub(crate) fn new(place: &'a Locality, members: Vec<Member<'a>>) -> Self {
        let weight = members.iter().fold(0_u32, |sum, member| sum.saturating_add(member.weight));
        Self { place, members, weight, priority: 0 }
    }

    /// A place whose endpoints cannot be reached still takes its part.
    fn share(&self) -> u64 {
        u64::from(self.weight.max(1))
    }
}

/// Whose preferences count.
pub(crate) struct Client<'a> {
    pub(crate) locality: &'a Locality,
    /// With those that stand for its place.
    pub(crate) labels: &'a Labels,
    /// The cluster that endpoints are in.
    pub(crate) cluster: &'a str,
}

/// `fails_over`: something tells when endpoints are bad; without it lower priorities would never be used.
pub(crate) fn arranged<'a>(
    mut groups: Vec<Group<'a>>,
    client: &Client<'_>,
    setting: &LocalityLoadBalancerSetting,
    fails_over: bool,
) -> Vec<Group<'a>> {
    if !setting.distribute.is_empty() {
        distribute(&mut groups, client.locality, &setting.distribute);
        return groups;
    }
    if !fails_over {
        return groups;
    }
    if setting.failover_priority.is_empty() {
        fail_over(&mut groups, client.locality, &setting.failover);
        return groups;
    }
    if !client.labels.is_empty() {
        groups = by_labels(&groups, client, &setting.failover_priority);
    }
    if !setting.failover.is_empty() {
        fail_over(&mut groups, client.locality, &setting.failover);
    }
    groups
}

/// The first entry that is for the client's place decides; localities that it does not name get nothing.
fn distribute(groups: &mut [Group<'_>], client: &Locality, entries: &[Distribute]) {
    let Some(entry) = entries.iter().find(|entry| covers(&entry.from, client)) else { return };
    let mut left: BTreeSet<usize> = (0..groups.len()).collect();
    for (to, &percent) in &entry.to {
        let chosen: Vec<usize> = left.iter().copied().filter(|&index| covers(to, groups[index].place)).collect();
        let total: u64 = chosen.iter().map(|&index| groups[index].share()).sum();
        for index in chosen {
            left.remove(&index);
            let share = (groups[index].share() * u64::from(percent)).div_ceil(total.max(1));
            if share > 0 {
                groups[index].weight = u32::try_from(share).unwrap_or(u32::MAX);
            }
        }
    }
    for index in left {
        groups[index].members.clear();
    }
}

/// `region/zone/subzone`, where `*` and what is missing mean any.
fn covers(pattern: &str, place: &Locality) -> bool {
    let mut parts = pattern.splitn(3, '/');
    let region = parts.next().unwrap_or_default();
    let mut rest = |own: &str| parts.next().is_none_or(|part| part.is_empty() || part == "*" || part == own);
    (region == "*" || region == &*place.region) && rest(&place.zone) && rest(&place.subzone)
}

/// The nearer, the earlier; of other regions the one that was named before the rest.
fn fail_over(groups: &mut [Group<'_>], client: &Locality, failover: &[Failover]) {
    let named = failover.iter().find(|entry| *entry.from == *client.region).map(|entry| entry.to.as_str());
    for group in groups.iter_mut() {
        let near = match group.place {
            place if place == client => 0,
            place if place.region == client.region && place.zone == client.zone => 1,
            place if place.region == client.region => 2,
            place if named.is_none_or(|to| *to == *place.region) => 3,
            _ => 4,
        };
        group.priority = group.priority.saturating_mul(5).saturating_add(near);
    }
    close_gaps(groups);
}

/// The client's region, then the one that was named for it, then the rest.
pub(crate) fn by_region<'a>(mut groups: Vec<Group<'a>>, client: &Locality, failover: &[Failover]) -> Vec<Group<'a>> {
    let named = failover.iter().find(|entry| *entry.from == *client.region).map(|entry| entry.to.as_str());
    for group in &mut groups {
        group.priority = match &*group.place.region {
            region if *region == *client.region => 0,
            region if named == Some(region) => 1,
            _ => 2,
        };
    }
    close_gaps(&mut groups);
    groups
}

/// Splits localities by how many labels, in order, client and endpoint have in common.
fn by_labels<'a>(groups: &[Group<'a>], client: &Client<'_>, wanted: &[String]) -> Vec<Group<'a>> {
    let values: Vec<(&str, &str)> = wanted
        .iter()
        .map(|text| match text.split_once('=') {
            Some((key, value)) if !value.contains('=') => (key, value),
            _ => {
                let key = text.split('=').next().unwrap_or_default();
                (key, client.labels.get(key).unwrap_or_default())
            }
        })
        .collect();
    let mut split = Vec::new();
    for group in groups {
        let mut by_priority: BTreeMap<usize, Vec<Member<'_>>> = BTreeMap::new();
        for &member in &group.members {
            let labels = member.labels(client.cluster);
            let alike = values.iter().take_while(|(key, value)| labels.get(key).unwrap_or_default() == *value).count();
            by_priority.entry(values.len() - alike).or_default().push(member);
        }
        split.extend(by_priority.into_iter().map(|(priority, members)| Group {
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
            ..Group::new(group.place, members)
        }));
    }
    close_gaps(&mut split);
    split
}

/// Envoy wants priorities without gaps.
fn close_gaps(groups: &mut [Group<'_>]) {
    let used: BTreeSet<u32> = groups.iter().map(|group| group.priority).collect();
    let dense: BTreeMap<u32, u32> = used.into_iter().zip(0..).collect();
    for group in groups {
        group.priority = dense.get(&group.priority).copied().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{Address, Health, Origin, Workload};

    use super::*;

    fn endpoint(place: &str, version: &str) -> Endpoint {
        let labels = Labels::from_iter([("version", version)]);
        let locality = place.parse().expect("any text is a place");
        Endpoint {
            address: Address::Ip([10, 0, 0, 1].into()),
            port: 80,
            health: Health::Ready,
            origin: Origin::Kubernetes,
            weight: 1,
            network: Arc::default(),
            workload: Arc::new(Workload { labels, locality, ..Workload::default() }),
        }
    }

    fn check(places: &[(&str, &str)], setting: &LocalityLoadBalancerSetting, want: &[(&str, u32, u32, usize)]) {
        let endpoints: Vec<_> = places.iter().map(|(place, version)| endpoint(place, version)).collect();
        let mut by_place: BTreeMap<&Locality, Vec<Member<'_>>> = BTreeMap::new();
        for endpoint in &endpoints {
            by_place.entry(&endpoint.workload.locality).or_default().push(Member::itself(endpoint, 1));
        }
        let groups = by_place.into_iter().map(|(place, members)| Group::new(place, members)).collect();
        let locality: Locality = "r1/a".parse().expect("any text is a place");
        let labels = Labels::from_iter([("version", "v1")]);
        let client = Client { locality: &locality, labels: &labels, cluster: "c" };
        let got: Vec<_> = arranged(groups, &client, setting, true)
            .iter()
            .map(|group| (group.place.to_string(), group.weight, group.priority, group.members.len()))
            .collect();
        let want: Vec<_> = want.iter().map(|&(place, w, p, n)| (place.to_owned(), w, p, n)).collect();
        assert_eq!(got, want);
    }

    const PLACES: [(&str, &str); 4] = [("r1/a", "v1"), ("r1/b", "v1"), ("r2/a", "v2"), ("r3/a", "v1")];

    #[test]
    fn shares_round_up_and_what_is_not_named_is_emptied() {
        let to = BTreeMap::from([("r1/*".to_owned(), 81), ("r2".to_owned(), 19)]);
        let setting = LocalityLoadBalancerSetting {
            distribute: vec![Distribute { from: "r1/a/*".into(), to }],
            ..LocalityLoadBalancerSetting::default()
        };
        check(&PLACES, &setting, &[("r1/a", 41, 0, 1), ("r1/b", 41, 0, 1), ("r2/a", 19, 0, 1), ("r3/a", 1, 0, 0)]);
    }

    #[test]
    fn priorities_follow_distance_without_gaps() {
        let failover = vec![Failover { from: "r1".into(), to: "r3".into() }];
        let setting = LocalityLoadBalancerSetting { failover, ..LocalityLoadBalancerSetting::default() };
        check(&PLACES, &setting, &[("r1/a", 1, 0, 1), ("r1/b", 1, 1, 1), ("r2/a", 1, 3, 1), ("r3/a", 1, 2, 1)]);
    }

    #[test]
    fn labels_split_a_locality() {
        let setting = LocalityLoadBalancerSetting {
            failover_priority: vec!["version".into()],
            ..LocalityLoadBalancerSetting::default()
        };
        check(&[("r1/a", "v1"), ("r1/a", "v2")], &setting, &[("r1/a", 1, 0, 1), ("r1/a", 1, 1, 1)]);
    }
}

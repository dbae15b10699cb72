//! Locality load balancing: weights over localities (distribute), or priorities (failover).

use std::collections::{BTreeMap, BTreeSet};

use config::kinds::destination_rule::{Distribute, Failover, LocalityLoadBalancerSetting};
use config::labels::Labels;
use config::locality::Locality;
use model::{Endpoint, NetworkGateway};

/// The endpoints of one locality, or those of one priority in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group<'a> {
    pub(crate) locality: &'a Locality,
    pub(crate) members: Vec<Member<'a>>,
    pub(crate) weight: u32,
    /// 0 is the highest priority.
    pub(crate) priority: u32,
}

/// A weighted target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Member<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) weight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target<'a> {
    Endpoint(&'a Endpoint),
    /// It represents the endpoints of its network.
    Gateway(&'a NetworkGateway),
}

impl<'a> Member<'a> {
    pub(crate) fn direct(endpoint: &'a Endpoint, scale: u32) -> Self {
        Self { target: Target::Endpoint(endpoint), weight: endpoint.weight.saturating_mul(scale) }
    }

    /// The labels that failover compares.
    fn labels(&self, cluster: &str) -> Labels {
        match self.target {
            Target::Endpoint(endpoint) => endpoint.topology_labels(cluster),
            Target::Gateway(gateway) => gateway.topology_labels(),
        }
    }
}

impl<'a> Group<'a> {
    pub(crate) fn new(locality: &'a Locality, members: Vec<Member<'a>>) -> Self {
        let weight = members.iter().fold(0_u32, |sum, member| sum.saturating_add(member.weight));
        Self { locality, members, weight, priority: 0 }
    }

    /// A locality without reachable endpoints still takes its share.
    fn share(&self) -> u64 {
        u64::from(self.weight.max(1))
    }
}

/// The client whose locality decides.
pub(crate) struct Client<'a> {
    pub(crate) locality: &'a Locality,
    /// Including topology labels.
    pub(crate) labels: &'a Labels,
    /// The cluster of the endpoints.
    pub(crate) cluster: &'a str,
}

/// `fails_over`: outlier detection is on; without it Envoy would never use lower priorities.
pub(crate) fn arrange<'a>(
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

/// The first entry that matches the client's locality decides; localities that it does not name get no traffic.
fn distribute(groups: &mut [Group<'_>], client: &Locality, entries: &[Distribute]) {
    let Some(entry) = entries.iter().find(|entry| covers(&entry.from, client)) else { return };
    let mut left: BTreeSet<usize> = (0..groups.len()).collect();
    for (to, &percent) in &entry.to {
        let chosen: Vec<usize> = left.iter().copied().filter(|&index| covers(to, groups[index].locality)).collect();
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

/// `region/zone/subzone`; `*` and missing parts match anything.
fn covers(pattern: &str, locality: &Locality) -> bool {
    let mut parts = pattern.splitn(3, '/');
    let region = parts.next().unwrap_or_default();
    let mut rest = |own: &str| parts.next().is_none_or(|part| part.is_empty() || part == "*" || part == own);
    (region == "*" || region == &*locality.region) && rest(&locality.zone) && rest(&locality.subzone)
}

/// Nearer localities have higher priority; among other regions the configured failover region comes first.
fn fail_over(groups: &mut [Group<'_>], client: &Locality, failover: &[Failover]) {
    let named = failover.iter().find(|entry| *entry.from == *client.region).map(|entry| entry.to.as_str());
    for group in groups.iter_mut() {
        let near = match group.locality {
            locality if locality == client => 0,
            locality if locality.region == client.region && locality.zone == client.zone => 1,
            locality if locality.region == client.region => 2,
            locality if named.is_none_or(|to| *to == *locality.region) => 3,
            _ => 4,
        };
        group.priority = group.priority.saturating_mul(5).saturating_add(near);
    }
    close_gaps(groups);
}

/// The client's region, then its configured failover region, then the rest.
pub(crate) fn by_region<'a>(mut groups: Vec<Group<'a>>, client: &Locality, failover: &[Failover]) -> Vec<Group<'a>> {
    let named = failover.iter().find(|entry| *entry.from == *client.region).map(|entry| entry.to.as_str());
    for group in &mut groups {
        group.priority = match &*group.locality.region {
            region if *region == *client.region => 0,
            region if named == Some(region) => 1,
            _ => 2,
        };
    }
    close_gaps(&mut groups);
    groups
}

/// Splits localities by the number of leading labels that client and endpoint share.
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
            ..Group::new(group.locality, members)
        }));
    }
    close_gaps(&mut split);
    split
}

/// Envoy requires priorities without gaps.
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

    use model::{EndpointAddress, Health, Origin, Workload};

    use super::*;

    fn endpoint(locality: &str, version: &str) -> Endpoint {
        let labels = Labels::from_iter([("version", version)]);
        let locality = locality.parse().expect("any text is a locality");
        Endpoint {
            address: EndpointAddress::Ip([10, 0, 0, 1].into()),
            port: 80,
            entry_port: None,
            health: Health::Ready,
            origin: Origin::Kubernetes,
            weight: 1,
            network: Arc::default(),
            workload: Arc::new(Workload { labels, locality, ..Workload::default() }),
        }
    }

    fn check(places: &[(&str, &str)], setting: &LocalityLoadBalancerSetting, want: &[(&str, u32, u32, usize)]) {
        let endpoints: Vec<_> = places.iter().map(|(locality, version)| endpoint(locality, version)).collect();
        let mut by_place: BTreeMap<&Locality, Vec<Member<'_>>> = BTreeMap::new();
        for endpoint in &endpoints {
            by_place.entry(&endpoint.workload.locality).or_default().push(Member::direct(endpoint, 1));
        }
        let groups = by_place.into_iter().map(|(locality, members)| Group::new(locality, members)).collect();
        let locality: Locality = "r1/a".parse().expect("any text is a locality");
        let labels = Labels::from_iter([("version", "v1")]);
        let client = Client { locality: &locality, labels: &labels, cluster: "c" };
        let got: Vec<_> = arrange(groups, &client, setting, true)
            .iter()
            .map(|group| (group.locality.to_string(), group.weight, group.priority, group.members.len()))
            .collect();
        let want: Vec<_> = want.iter().map(|&(locality, w, p, n)| (locality.to_owned(), w, p, n)).collect();
        assert_eq!(got, want);
    }

    const LOCALITIES: [(&str, &str); 4] = [("r1/a", "v1"), ("r1/b", "v1"), ("r2/a", "v2"), ("r3/a", "v1")];

    #[test]
    fn weights_round_up_and_unnamed_localities_get_none() {
        let to = BTreeMap::from([("r1/*".to_owned(), 81), ("r2".to_owned(), 19)]);
        let setting = LocalityLoadBalancerSetting {
            distribute: vec![Distribute { from: "r1/a/*".into(), to }],
            ..LocalityLoadBalancerSetting::default()
        };
        check(&LOCALITIES, &setting, &[("r1/a", 41, 0, 1), ("r1/b", 41, 0, 1), ("r2/a", 19, 0, 1), ("r3/a", 1, 0, 0)]);
    }

    #[test]
    fn priorities_follow_distance_without_gaps() {
        let failover = vec![Failover { from: "r1".into(), to: "r3".into() }];
        let setting = LocalityLoadBalancerSetting { failover, ..LocalityLoadBalancerSetting::default() };
        check(&LOCALITIES, &setting, &[("r1/a", 1, 0, 1), ("r1/b", 1, 1, 1), ("r2/a", 1, 3, 1), ("r3/a", 1, 2, 1)]);
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

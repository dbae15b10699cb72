//! Addresses that the status of ServiceEntries should hold for hosts without one. They equal those that proxies get before anybody has written
//! the status, so that writing it changes no configuration.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::IpAddr;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::kinds::service_entry::{AllocatedAddress, ServiceEntry};
use config::meta::Object;
use config::store::{Name, Snapshot};

use crate::environment::AddressRanges;
use crate::service_entry::{allocates, distinct, free, from_status};

/// ServiceEntries whose status differs, with the addresses to write. An address that two hosts claim stays with the older ServiceEntry; an
/// allocated address that some spec lists is released.
pub fn status_address_updates(snapshot: &Snapshot, ranges: &AddressRanges) -> Vec<(ObjectId, Vec<AllocatedAddress>)> {
    let mut objects: Vec<_> = snapshot.service_entries.values().collect();
    objects.sort_by(|a, b| a.meta.age_order(&b.meta));
    let given = allocate(&objects, ranges);
    let wanted = objects.iter().map(|object| {
        let hosts = allocatable_hosts(object).into_iter().filter(|host| allocates(object, host));
        let addresses = hosts.flat_map(|host| {
            let given = given.get(&Name::new(&object.meta.namespace, host)).into_iter().flatten();
            given.map(move |address| AllocatedAddress { host: host.to_owned(), value: address.to_string() })
        });
        (object, addresses.collect::<Vec<_>>())
    });
    let differs = wanted.filter(|(object, wanted)| pairs(wanted) != pairs(&object.spec.status.addresses));
    differs.map(|(object, wanted)| (id(object), wanted)).collect()
}

/// By namespace and host: several ServiceEntries may share a host, and then share its addresses.
fn allocate(objects: &[&Arc<Object<ServiceEntry>>], ranges: &AddressRanges) -> BTreeMap<Name, Vec<IpAddr>> {
    let written: BTreeSet<IpAddr> =
        objects.iter().flat_map(|object| &object.spec.addresses).filter_map(|text| text.parse().ok()).collect();
    let mut owners: BTreeMap<IpAddr, Name> = BTreeMap::new();
    let (mut given, mut without) = (BTreeMap::new(), BTreeSet::new());
    for object in objects {
        for host in distinct(&object.spec.hosts).into_iter().filter(|host| allocates(object, host)) {
            let name = Name::new(&object.meta.namespace, host);
            let allocated = from_status(object, host);
            let taken =
                |address: &IpAddr| written.contains(address) || owners.get(address).is_some_and(|owner| *owner != name);
            if allocated.is_empty() || allocated.iter().any(taken) {
                without.insert(name);
            } else if let Entry::Vacant(first) = given.entry(name.clone()) {
                owners.extend(allocated.iter().map(|address| (*address, name.clone())));
                first.insert(allocated);
            }
        }
    }
    let mut taken: BTreeSet<IpAddr> = owners.into_keys().chain(written).collect();
    for name in without {
        if let Some(addresses) = free(ranges, &name, &taken).filter(|_| !given.contains_key(&name)) {
            taken.extend(addresses);
            given.insert(name, addresses.to_vec());
        }
    }
    given
}

fn allocatable_hosts(object: &Object<ServiceEntry>) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    object.spec.hosts.iter().map(String::as_str).filter(|host| !host.is_empty() && seen.insert(*host)).collect()
}

fn pairs(addresses: &[AllocatedAddress]) -> BTreeSet<(&str, &str)> {
    addresses.iter().map(|address| (address.host.as_str(), address.value.as_str())).collect()
}

fn id(object: &Object<ServiceEntry>) -> ObjectId {
    ObjectId { kind: Kind::ServiceEntry, namespace: object.meta.namespace.clone(), name: object.meta.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    fn wanted(entries: &[&str]) -> Vec<String> {
        wanted_of(entries, &AddressRanges::default())
    }

    fn wanted_of(entries: &[&str], ranges: &AddressRanges) -> Vec<String> {
        let text: Vec<String> = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| {
                let meta =
                    format!("{{name: e{index}, namespace: shop, creationTimestamp: '2026-01-01T00:00:0{index}Z'}}");
                format!("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {meta}\n{entry}")
            })
            .collect();
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let parsed = parse_documents("f", &text.join("\n---\n"));
        let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let shown = |(id, addresses): (ObjectId, Vec<AllocatedAddress>)| {
            let all: Vec<String> = addresses.iter().map(|it| format!("{}={}", it.host, it.value)).collect();
            format!("{}: {}", id.name, all.join(" "))
        };
        status_address_updates(&snapshot, ranges).into_iter().map(shown).collect()
    }

    const PORTS: &str = "ports: [{number: 80, name: http, protocol: HTTP}]";

    fn entry(hosts: &str, more: &str, status: &str) -> String {
        format!("spec: {{hosts: [{hosts}], resolution: DNS, {PORTS}{more}}}\nstatus: {{addresses: [{status}]}}")
    }

    #[test]
    fn each_host_gets_one_of_each_family_and_keeps_it() {
        let found = wanted(&[&entry("b.example, a.example, '*.example'", "", "")]);
        assert_eq!(found.len(), 1);
        let addresses: Vec<&str> = found[0].trim_start_matches("e0: ").split(' ').collect();
        assert_eq!(addresses.len(), 4, "{found:?}");
        assert!(addresses[0].starts_with("b.example=240.240.") && addresses[1].starts_with("b.example=2001:2::"));
        let status: Vec<String> = addresses
            .iter()
            .map(|it| it.split_once('=').unwrap())
            .map(|(host, value)| format!("{{host: {host}, value: '{value}'}}"))
            .collect();
        assert_eq!(wanted(&[&entry("b.example, a.example, '*.example'", "", &status.join(", "))]), [""; 0]);
    }

    #[test]
    fn allocates_from_the_configured_range_until_it_is_full() {
        let ranges = AddressRanges {
            v4: ([10, 44, 0, 16].into(), [0, 0, 0, 15].into()),
            v6: ("fd00::".parse().unwrap(), "::ffff".parse().unwrap()),
        };
        let hosts: Vec<String> = (0..20).map(|number| format!("h{number}.example")).collect();
        let found = wanted_of(&[&entry(&hosts.join(", "), "", "")], &ranges);
        let addresses = found[0].strip_prefix("e0: ").unwrap().split(' ').map(|it| it.split_once('=').unwrap().1);
        let (v6, v4): (BTreeSet<&str>, BTreeSet<&str>) = addresses.partition(|it| it.contains(':'));
        // Neither the network address nor the broadcast address.
        let all: BTreeSet<String> = (17..31).map(|low| format!("10.44.0.{low}")).collect();
        assert_eq!(v4, all.iter().map(String::as_str).collect());
        assert!(v6.len() == 14 && v6.iter().all(|it| it.starts_with("fd00::")), "{v6:?}");
    }

    #[test]
    fn the_older_entry_keeps_a_duplicate_address() {
        let allocated = |host: &str| format!("{{host: {host}, value: 240.240.7.7}}");
        let found = wanted(&[
            &entry("a.example", "", &allocated("a.example")),
            &entry("b.example", "", &allocated("b.example")),
        ]);
        assert!(
            found.len() == 1 && found[0].starts_with("e1: b.example=240.240.") && !found[0].contains(".7.7"),
            "{found:?}"
        );
        // One host in two objects of a namespace is one service.
        let found = wanted(&[&entry("a.example", "", &allocated("a.example")), &entry("a.example", "", "")]);
        assert_eq!(found, ["e1: a.example=240.240.7.7"]);
    }

    #[test]
    fn addresses_in_specs_are_not_allocated_and_unneeded_ones_are_released() {
        let allocated = "{host: a.example, value: 240.240.7.7}";
        let found =
            wanted(&[&entry("a.example", "", allocated), &entry("b.example", ", addresses: [240.240.7.7]", "")]);
        assert!(
            found.len() == 1 && found[0].starts_with("e0: a.example=") && !found[0].contains("240.240.7.7"),
            "{found:?}"
        );
        assert_eq!(wanted(&[&entry("a.example", ", addresses: [10.0.0.1]", allocated)]), ["e0: "]);
    }
}

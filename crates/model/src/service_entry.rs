//! ServiceEntries as services: one for each host, with its addresses. Their endpoints are in `service_entry_endpoint`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;
use config::kinds::port;
use config::kinds::service_entry::{self as kube, ServiceEntry, ServiceEntryLocation};
use config::mesh::MeshConfig;
use config::meta::Object;
use config::store::Name;

use crate::environment::AddressRanges;
use crate::protocol::Protocol;
use crate::service::{ConnectStrategy, Distribution, Port, Range, Registry, Resolution, Service, TargetPort};
use crate::visibility::Visibility;

const OPT_OUT: &str = "networking.istio.io/enable-autoallocate-ip";

/// All services that ServiceEntries declare.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryServices {
    all: Vec<Arc<Service>>,
    /// Positions by namespace and host, oldest first: several ServiceEntries may share a host.
    by_key: BTreeMap<Name, Vec<usize>>,
    /// Of services whose host is resolved per request.
    dynamic_namespaces: BTreeSet<Arc<str>>,
}

impl EntryServices {
    pub(crate) fn new<'a>(
        objects: impl Iterator<Item = &'a Arc<Object<ServiceEntry>>>,
        config: &MeshConfig,
        ranges: &AddressRanges,
        inherited: impl Fn(&Object<ServiceEntry>) -> Option<Distribution>,
    ) -> Self {
        let objects: Vec<_> = objects.collect();
        let allocated = Allocation::new(&objects, ranges);
        let mut all = Vec::new();
        for object in objects {
            let distribution = inherited(object);
            for host in distinct(&object.spec.hosts) {
                let automatic = allocated.of(object, host);
                all.push(Arc::new(service(object, host, automatic, distribution, config)));
            }
        }
        all.sort_by(|a, b| a.precedence(b).then_with(|| a.made_from.cmp(&b.made_from)));
        let mut by_key: BTreeMap<Name, Vec<usize>> = BTreeMap::new();
        for (index, service) in all.iter().enumerate() {
            by_key.entry(crate::mesh::key(service)).or_default().push(index);
        }
        let dynamic = all.iter().filter(|service| service.is_dynamic());
        let dynamic_namespaces = dynamic.map(|service| service.namespace.clone()).collect();
        Self { all, by_key, dynamic_namespaces }
    }

    /// Keeps the pointers of services that did not change.
    pub(crate) fn keep_unchanged(mut self, old: &Self) -> Self {
        for service in &mut self.all {
            if let Some(previous) = old.of(&crate::mesh::key(service)).find(|previous| *previous == service) {
                *service = previous.clone();
            }
        }
        self
    }

    pub(crate) fn all(&self) -> &[Arc<Service>] {
        &self.all
    }

    pub(crate) fn dynamic_namespaces(&self) -> &BTreeSet<Arc<str>> {
        &self.dynamic_namespaces
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Name> {
        self.by_key.keys()
    }

    pub(crate) fn of(&self, key: &Name) -> impl Iterator<Item = &Arc<Service>> {
        self.by_key.get(key).into_iter().flatten().map(|&index| &self.all[index])
    }

    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Service>> {
        self.all.iter().filter(move |service| *service.namespace == *namespace)
    }
}

pub(crate) fn distinct(hosts: &[String]) -> BTreeSet<&str> {
    hosts.iter().map(String::as_str).filter(|host| !host.is_empty()).collect()
}

fn service(
    object: &Object<ServiceEntry>,
    host: &str,
    automatic: Vec<IpAddr>,
    distribution: Option<Distribution>,
    config: &MeshConfig,
) -> Service {
    let Object { meta, spec } = object;
    let visibility = if spec.export_to.is_empty() {
        Visibility::by_default(&config.default_service_export_to, &meta.namespace)
    } else {
        Visibility::new(spec.export_to.iter().map(String::as_str), &meta.namespace)
    };
    let (addresses, ranges) = addresses(&spec.addresses);
    Service {
        host: Host::new(host),
        name: Arc::from(host),
        namespace: meta.namespace.clone(),
        created: meta.created,
        ports: spec.ports.iter().filter_map(service_port).collect(),
        addresses,
        ranges,
        automatic,
        resolution: match spec.resolution {
            kube::ServiceEntryResolution::None => Resolution::Passthrough,
            kube::ServiceEntryResolution::Static => Resolution::ClientSide,
            kube::ServiceEntryResolution::Dns => Resolution::Dns,
            kube::ServiceEntryResolution::DnsRoundRobin => Resolution::DnsRoundRobin,
            kube::ServiceEntryResolution::DynamicDns => Resolution::DynamicDns,
        },
        registry: Registry::External,
        external: spec.location == ServiceEntryLocation::MeshExternal,
        visibility,
        hides_slices: false,
        export_to: spec.export_to.iter().cloned().collect(),
        selector: spec.workload_selector.as_ref().map(|selector| selector.labels.clone()),
        labels: meta.labels.clone(),
        node_local: false,
        distribution,
        publish_not_ready: false,
        connect_strategy: ConnectStrategy::annotated(meta),
        declared_identities: spec.subject_alt_names.clone(),
        made_from: ObjectId { kind: Kind::ServiceEntry, namespace: meta.namespace.clone(), name: meta.name.clone() },
    }
}

/// A number outside of the port range yields no port.
fn service_port(port: &port::IstioPort) -> Option<Port> {
    let number = u16::try_from(port.number).ok().filter(|&number| number != 0)?;
    let target = u16::try_from(port.target_port).ok().filter(|&target| target != 0);
    Some(Port {
        name: port.name.clone(),
        number,
        protocol: Protocol::named(&port.protocol).unwrap_or(Protocol::Auto),
        target: target.map_or(TargetPort::Same, TargetPort::Number),
    })
}

/// Single addresses and CIDR ranges; anything else is left out.
fn addresses(listed: &[String]) -> (Vec<IpAddr>, Vec<Range>) {
    let (mut addresses, mut ranges) = (Vec::new(), Vec::new());
    for text in listed {
        match (text.parse(), Range::parse(text)) {
            (Ok(address), _) => addresses.push(address),
            (_, Some(range)) if range.is_one() => addresses.push(range.address),
            (_, Some(range)) => ranges.push(range),
            _ => {}
        }
    }
    (addresses, ranges)
}

/// Automatically allocated addresses for proxies with DNS capture: those of the status, else from a hash of the host.
struct Allocation {
    hashed: BTreeMap<Name, [IpAddr; 2]>,
}

impl Allocation {
    fn new(objects: &[&Arc<Object<ServiceEntry>>], ranges: &AddressRanges) -> Self {
        let mut taken: BTreeSet<IpAddr> = objects
            .iter()
            .flat_map(|object| &object.spec.status.addresses)
            .filter_map(|a| a.value.parse().ok())
            .collect();
        let wanted: BTreeSet<Name> = objects
            .iter()
            .flat_map(|object| distinct(&object.spec.hosts).into_iter().map(move |host| (object, host)))
            .filter(|(object, host)| allocates(object, host) && from_status(object, host).is_empty())
            .map(|(object, host)| Name::new(&object.meta.namespace, host))
            .collect();
        let mut hashed = BTreeMap::new();
        for name in wanted {
            if let Some(addresses) = free(ranges, &name, &taken) {
                taken.extend(addresses);
                hashed.insert(name, addresses);
            }
        }
        Self { hashed }
    }

    fn of(&self, object: &Object<ServiceEntry>, host: &str) -> Vec<IpAddr> {
        if !allocates(object, host) {
            return Vec::new();
        }
        let given = from_status(object, host);
        if !given.is_empty() {
            return given;
        }
        self.hashed.get(&Name::new(&object.meta.namespace, host)).map(|pair| pair.to_vec()).unwrap_or_default()
    }
}

/// `None`: all 64516 addresses, or those of a smaller range, are taken.
pub(crate) fn free(ranges: &AddressRanges, name: &Name, taken: &BTreeSet<IpAddr>) -> Option<[IpAddr; 2]> {
    let first = hash(name);
    let numbers = (0..=u16::MAX).map(|step| first.wrapping_add(step));
    let pair = |number| Some([v4(ranges, number)?.into(), v6(ranges, number)?.into()]);
    let is_free = |pair: &[IpAddr; 2]| pair.iter().all(|address| !taken.contains(address));
    numbers.filter_map(pair).find(is_free)
}

pub(crate) fn allocates(object: &Object<ServiceEntry>, host: &str) -> bool {
    let Object { meta, spec } = object;
    let declined = meta.labels.get(OPT_OUT).is_some_and(|value| value.eq_ignore_ascii_case("false"));
    let nameable = !host.starts_with('*') || spec.resolution == kube::ServiceEntryResolution::DynamicDns;
    spec.addresses.is_empty() && spec.resolution != kube::ServiceEntryResolution::None && !declined && nameable
}

pub(crate) fn from_status(object: &Object<ServiceEntry>, host: &str) -> Vec<IpAddr> {
    let given = object.spec.status.addresses.iter().filter(|address| address.host == host);
    given.filter_map(|address| address.value.parse().ok()).collect()
}

/// `None`: the network address or the broadcast address.
fn v4(ranges: &AddressRanges, number: u16) -> Option<Ipv4Addr> {
    let (first, bits) = ranges.v4;
    let host = Ipv4Addr::from_bits(number.into()) & bits;
    let [.., low] = host.octets();
    (low != 0 && low != 255 && host != bits).then_some(first | host)
}

fn v6(ranges: &AddressRanges, number: u16) -> Option<Ipv6Addr> {
    let (first, bits) = ranges.v6;
    let host = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0xf0f0, number) & bits;
    (!host.is_unspecified()).then_some(first | host)
}

/// FNV-1a, folded: independent of the process and of the order of files.
fn hash(name: &Name) -> u16 {
    let bytes = name.namespace.bytes().chain([b'/']).chain(name.name.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    ((hash >> 16) ^ (hash & 0xffff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::meta::Meta;

    fn entry(name: &str, hosts: &[&str], resolution: kube::ServiceEntryResolution) -> Arc<Object<ServiceEntry>> {
        let hosts = hosts.iter().map(ToString::to_string).collect();
        let meta = Meta { name: Arc::from(name), namespace: Arc::from("shop"), ..Meta::default() };
        Arc::new(Object { meta, spec: ServiceEntry { hosts, resolution, ..ServiceEntry::default() } })
    }

    fn automatic(objects: &[Arc<Object<ServiceEntry>>]) -> BTreeMap<String, Vec<IpAddr>> {
        let entries = EntryServices::new(objects.iter(), &MeshConfig::default(), &AddressRanges::default(), |_| None);
        entries.all().iter().map(|service| (service.host.to_string(), service.automatic.clone())).collect()
    }

    #[test]
    fn hashed_addresses_differ_and_do_not_depend_on_order() {
        let hosts: Vec<String> = (0..2000).map(|n| format!("h{n}.example.com")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let (front, back) = hosts.split_at(700);
        let dns = kube::ServiceEntryResolution::Dns;
        let one = automatic(&[entry("a", front, dns), entry("b", back, dns)]);
        let distinct: BTreeSet<_> = one.values().map(|addresses| addresses[0]).collect();
        assert_eq!(distinct.len(), 2000);
        assert_eq!(one, automatic(&[entry("b", back, dns), entry("a", front, dns)]));
    }

    #[test]
    fn of_equally_old_entries_with_one_host_the_first_by_name_counts() {
        let entries = ["b", "a", "c"].map(|name| entry(name, &["x.example.com"], kube::ServiceEntryResolution::Dns));
        let made = EntryServices::new(entries.iter(), &MeshConfig::default(), &AddressRanges::default(), |_| None);
        let names: Vec<&str> = made.all().iter().map(|service| &*service.made_from.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn hosts_without_dns_names_get_no_address() {
        assert!(
            automatic(&[entry("a", &["a.example.com"], kube::ServiceEntryResolution::None)])["a.example.com"]
                .is_empty()
        );
        assert!(
            automatic(&[entry("a", &["*.a.example.com"], kube::ServiceEntryResolution::Static)])["*.a.example.com"]
                .is_empty()
        );
    }

    #[test]
    fn distinguishes_addresses_ranges_and_invalid_text() {
        let listed = ["10.0.0.1", "10.0.0.2/32", "10.1.0.0/16", "10.1.0.0/40", "x"].map(str::to_owned);
        let (addresses, ranges) = addresses(&listed);
        assert_eq!(addresses, ["10.0.0.1".parse::<IpAddr>().unwrap(), "10.0.0.2".parse().unwrap()]);
        assert_eq!(ranges.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.1.0.0/16"]);
    }
}

//! Route configurations after a change. Where only routes of a VirtualService are new, the virtual hosts that it speaks for are encoded
//! anew and put between the others as they stand encoded: a repeated field is the concatenation of its entries.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use prost::Message;
use translate::OF_ROUTES;
use wire::envoy::config::route::v3::{Route, VirtualHost};
use wire::envoy::service::discovery::v3::DiscoveryResponse;
use wire::google::protobuf::Any;
use xds::{Resource, TypeUrl, Variant};

use crate::compared::Compared;
use crate::layer::{Layer, Making, Remade, Ware};
use crate::rendered;
use crate::text;
use crate::version::version;

/// The field number and wire type before each of a RouteConfiguration's `virtual_hosts`.
const VIRTUAL_HOSTS: u8 = 2 << 3 | LENGTH_DELIMITED;
const LENGTH_DELIMITED: u8 = 2;
const VARINT: u8 = 0;

/// `None`: no route reads what changed.
pub(crate) fn remade(making: &Making<'_>, found: &Compared<'_>, held: &Layer) -> Option<Remade> {
    let touched = Touched::new(found);
    let table = held.table(TypeUrl::Route);
    let known = |name: &str| table.and_then(|table| table.get(name));
    let gone = held.http.routes.difference(&making.http.routes);
    let mut asked: BTreeSet<_> = gone.map(|name| (TypeUrl::Route, Arc::from(name.as_str()))).collect();
    let mut made = Vec::new();
    for name in &making.http.routes {
        let before = known(name);
        if before.is_some() && !touched.covers(found, name) && !is_patched_otherwise(found, name) {
            continue;
        }
        let spliced = before.and_then(|before| spliced(making, found, name, before));
        let resource = match spliced {
            Some(resource) => Ware { kind: TypeUrl::Route, resource: Arc::new(resource) },
            None => Ware::new(rendered::route(making.mesh, found.now, name)),
        };
        asked.insert((TypeUrl::Route, resource.resource.name.clone()));
        made.push(resource);
    }
    (!asked.is_empty()).then_some(Remade::Some { made, asked })
}

/// Other patches are for the route configuration of this name now, or they say something else.
pub(crate) fn is_patched_otherwise(found: &Compared<'_>, name: &str) -> bool {
    let (now, before) = (&found.now.patches.outbound, &found.before.patches.outbound);
    let patched = || [found.now, found.before].into_iter().any(|place| translate::patches_route(place, name));
    !now.agrees(before, OF_ROUTES) && patched()
}

enum Touched {
    All,
    Names(BTreeSet<String>),
}

impl Touched {
    /// Routes of the ports that a changed service has or had, and of those that a changed VirtualService may speak for.
    fn new(found: &Compared<'_>) -> Self {
        if found.rules.iter().flat_map(|host| found.rules_of(host)).any(|rule| translate::read_by_routes(rule)) {
            return Self::All;
        }
        let routes: Vec<_> = found.routes.iter().flat_map(|change| change.old.into_iter().chain(change.new)).collect();
        let all = [found.now, found.before].into_iter().flat_map(|place| &place.scope.services);
        let spoken = all
            .filter(|service| routes.iter().flat_map(|object| &object.hosts).any(|host| host.matches(&service.host)));
        let ports = found.services.iter().copied().chain(spoken).flat_map(|service| {
            service.ports.iter().flat_map(|port| [port.number.to_string(), format!("{}:{}", service.host, port.number)])
        });
        let plain = (!routes.is_empty()).then(|| translate::PLAIN_PORT.to_string());
        Self::Names(ports.chain(plain).collect())
    }

    fn covers(&self, found: &Compared<'_>, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) if names.is_empty() => false,
            Self::Names(names) => names.contains(name) || translate::serves_all_ports(found.now, name),
        }
    }
}

/// `None`: it has to be made as a whole.
fn spliced(making: &Making<'_>, found: &Compared<'_>, name: &str, before: &Resource) -> Option<Resource> {
    let patched = [found.now, found.before].into_iter().any(|place| translate::patches_route(place, name));
    if patched || !found.services.is_empty() || !found.rules.is_empty() {
        return None;
    }
    let any = DiscoveryResponse::decode(before.entry(Variant::Sotw)).ok()?.resources.pop()?;
    let (mut bytes, mut made_from) = (any.value, before.made_from.clone());
    for change in &found.routes {
        let (old, new) = (change.old?, change.new?);
        if !old.is_like(new) {
            return None;
        }
        let (hosts, routes) = translate::respoken(making.mesh, found.now, name, old, new)?;
        bytes = with_routes(&bytes, &hosts.iter().map(String::as_str).collect(), &routes)?;
        let gone = text::spoken(&old.made_from);
        made_from.retain(|id| !gone.contains(id));
        if !hosts.is_empty() {
            made_from.extend(text::spoken(&new.made_from));
        }
    }
    made_from.sort();
    made_from.dedup();
    let any = Any { value: bytes, ..any };
    Some(Resource::new(before.name.clone(), version(&any), &any, made_from))
}

/// A route configuration in which the virtual hosts of these names have these routes. `None`: it is none.
fn with_routes(configuration: &Bytes, hosts: &HashSet<&str>, routes: &[Route]) -> Option<Bytes> {
    if hosts.is_empty() {
        return Some(configuration.clone());
    }
    let mut out = Vec::with_capacity(configuration.len() + 4096);
    let (mut rest, mut copied) = (configuration.clone(), 0);
    while rest.has_remaining() {
        let begin = configuration.len() - rest.len();
        let key = prost::decode_length_delimiter(&mut rest).ok()?;
        let number = prost::decode_length_delimiter(&mut rest).ok()?;
        let content = match (key & 7) as u8 {
            VARINT => continue,
            LENGTH_DELIMITED if number <= rest.len() => rest.split_to(number),
            _ => return None,
        };
        if key == usize::from(VIRTUAL_HOSTS) && hosts.contains(host_name(&content)?) {
            out.extend_from_slice(&configuration[copied..begin]);
            copied = configuration.len() - rest.len();
            let host = VirtualHost { routes: routes.to_vec(), ..VirtualHost::decode(content).ok()? };
            out.push(VIRTUAL_HOSTS);
            host.encode_length_delimited(&mut out).expect("a Vec grows as needed");
        }
    }
    out.extend_from_slice(&configuration[copied..]);
    Some(out.into())
}

/// `name` is the first field.
fn host_name(virtual_host: &Bytes) -> Option<&str> {
    let mut rest: &[u8] = virtual_host.strip_prefix(&[1 << 3 | LENGTH_DELIMITED])?;
    let length = prost::decode_length_delimiter(&mut rest).ok()?;
    std::str::from_utf8(rest.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::envoy::config::route::v3::RouteConfiguration;

    fn host(name: &str, routes: &[&str]) -> VirtualHost {
        let routes = routes.iter().map(|name| Route { name: (*name).into(), ..Route::default() }).collect();
        VirtualHost { name: name.into(), domains: vec![name.into()], routes, ..VirtualHost::default() }
    }

    fn configuration(hosts: Vec<VirtualHost>) -> RouteConfiguration {
        let maximum = wire::google::protobuf::UInt32Value { value: 1 << 20 };
        RouteConfiguration {
            name: "80".into(),
            virtual_hosts: hosts,
            max_direct_response_body_size_bytes: Some(maximum),
            ignore_port_in_host_matching: true,
            ..RouteConfiguration::default()
        }
    }

    #[test]
    fn spliced_bytes_are_those_of_a_whole_encoding() {
        let before = configuration(vec![host("a", &["x"]), host("b", &["x"]), host("c", &[])]);
        let long = "y".repeat(300);
        let after = configuration(vec![host("a", &["x"]), host("b", &[&long]), host("c", &[&long])]);
        let routes = after.virtual_hosts[1].routes.clone();
        let spliced = with_routes(&before.encode_to_vec().into(), &HashSet::from(["b", "c", "absent"]), &routes);
        assert_eq!(spliced.expect("a route configuration"), after.encode_to_vec());
    }

    #[test]
    fn what_is_no_configuration_is_left_alone() {
        let broken = Bytes::from_static(&[VIRTUAL_HOSTS, 9, 1]);
        assert_eq!(with_routes(&broken, &HashSet::from(["a"]), &[]), None);
    }
}

//! Route configurations after a change. If only the routes of VirtualServices changed, the affected virtual hosts are encoded and spliced
//! between the encoded others: a repeated field is the concatenation of its entries.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use config::diagnostic::ObjectId;
use model::Placement;
use prost::Message;
use wire::envoy::config::route::v3::{Route, VirtualHost};
use wire::google::protobuf::Any;
use xds::{Resource, TypeUrl};

use crate::isolation;
use crate::layer::{BuildContext, EncodedResource, Layer, ResourceUpdate, packed_message};
use crate::provenance;
use crate::render;
use crate::scope_change::ScopeChange;
use crate::version::version;

/// The tag (field number and wire type) of a RouteConfiguration's `virtual_hosts`.
const VIRTUAL_HOSTS: u8 = 2 << 3 | LENGTH_DELIMITED;
const LENGTH_DELIMITED: u8 = 2;
const VARINT: u8 = 0;

/// `None`: no route configuration is affected.
pub(crate) fn rebuild_routes(
    context: &mut BuildContext<'_>,
    scope: &ScopeChange<'_>,
    previous: &Layer,
) -> Option<ResourceUpdate> {
    let affected = scope.routes();
    let table = previous.table(TypeUrl::Route);
    let known = |name: &str| table.and_then(|table| table.get(name));
    let gone = previous.http.routes.difference(&context.http.routes);
    let mut covered: BTreeSet<_> = gone.map(|name| (TypeUrl::Route, Arc::from(name.as_str()))).collect();
    let mut made = Vec::new();
    for name in &context.http.clone().routes {
        let before = known(name);
        if before.is_some() && !affected.contains(scope.now, name) && !scope.patches_route(name) {
            continue;
        }
        let resource = isolated_route(
            context,
            scope.now,
            name,
            || changed_suspects(scope),
            |context| {
                let spliced = before.and_then(|before| splice_resource(context, scope, name, before));
                match spliced {
                    Some(resource) => EncodedResource { kind: TypeUrl::Route, resource: Arc::new(resource) },
                    None => EncodedResource::new(render::render_route(context.mesh, scope.now, name)),
                }
            },
        );
        covered.insert((TypeUrl::Route, resource.resource.name.clone()));
        made.push(resource);
    }
    (!covered.is_empty()).then_some(ResourceUpdate::Partial { made, covered })
}

/// A route configuration; if it cannot be translated, the one before, or an empty one.
pub(crate) fn isolated_route(
    context: &mut BuildContext<'_>,
    placement: &Placement,
    name: &str,
    suspects: impl FnOnce() -> Vec<ObjectId>,
    translate: impl FnOnce(&mut BuildContext<'_>) -> EncodedResource,
) -> EncodedResource {
    let made = context.isolated(placement, || format!("route configuration {name}"), suspects, translate);
    made.or_else(|| context.previous_resource(TypeUrl::Route, name))
        .unwrap_or_else(|| EncodedResource::new(render::render_empty_route(name)))
}

/// Changed VirtualServices; all of them, if something else changed.
fn changed_suspects(scope: &ScopeChange<'_>) -> Vec<ObjectId> {
    let changed = scope.virtual_services.iter().filter_map(|change| change.new);
    let suspects: Vec<_> = changed.flat_map(|object| object.made_from.iter().cloned()).collect();
    if suspects.is_empty() { isolation::route_suspects(scope.now) } else { suspects }
}

/// `None`: the whole route configuration must be translated.
fn splice_resource(
    context: &BuildContext<'_>,
    scope: &ScopeChange<'_>,
    name: &str,
    before: &Resource,
) -> Option<Resource> {
    let patched = [scope.now, scope.before].into_iter().any(|placement| translate::patches_route(placement, name));
    if patched || !scope.services.is_empty() || !scope.rules.is_empty() {
        return None;
    }
    let any = packed_message(before)?;
    let (mut bytes, mut made_from) = (any.value, before.provenance.clone());
    for change in &scope.virtual_services {
        let (old, new) = (change.old?, change.new?);
        if !old.is_interchangeable_with(new) {
            return None;
        }
        let (hosts, routes) = translate::changed_routes(context.mesh, scope.now, name, old, new)?;
        bytes = splice_routes(&bytes, &hosts.iter().map(String::as_str).collect(), &routes)?;
        let gone = provenance::interned_texts(&old.made_from);
        made_from.retain(|id| !gone.contains(id));
        if !hosts.is_empty() {
            made_from.extend(provenance::interned_texts(&new.made_from));
        }
    }
    made_from.sort();
    made_from.dedup();
    let any = Any { value: bytes, ..any };
    Some(Resource::new(before.name.clone(), version(&any), &any, made_from))
}

/// The route configuration with the routes of these virtual hosts replaced. `None`: the bytes are malformed.
fn splice_routes(configuration: &Bytes, hosts: &HashSet<&str>, routes: &[Route]) -> Option<Bytes> {
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
    fn spliced_bytes_equal_a_full_encoding() {
        let before = configuration(vec![host("a", &["x"]), host("b", &["x"]), host("c", &[])]);
        let long = "y".repeat(300);
        let after = configuration(vec![host("a", &["x"]), host("b", &[&long]), host("c", &[&long])]);
        let routes = after.virtual_hosts[1].routes.clone();
        let splice = splice_routes(&before.encode_to_vec().into(), &HashSet::from(["b", "c", "absent"]), &routes);
        assert_eq!(splice.expect("a route configuration"), after.encode_to_vec());
    }

    #[test]
    fn rejects_malformed_route_configurations() {
        let broken = Bytes::from_static(&[VIRTUAL_HOSTS, 9, 1]);
        assert_eq!(splice_routes(&broken, &HashSet::from(["a"]), &[]), None);
    }
}
